//! Which parameters belong to which group, and steps that are refused as a whole.

use sneppx::DType::{self, F32, F64};
use sneppx::Tensor;
use sneppx::cpu::Cpu;
use sneppx::optim::{AdamW, AdamWOptions, Optimizer, ParamGroup};
use sneppx::tensor::Leaf;

use crate::leaves::{adamw, device, leaf, message, set_grad, tensor, value};

#[test]
fn matrices_decay_unless_their_path_has_an_excepted_segment() {
    let matrix = |name: &str| Leaf::new(name, Tensor::ones(&device(), F32, &[2, 2]).unwrap(), true);
    let leaves =
        || vec![matrix("embedding.weight"), matrix("head.weight"), leaf("head.bias", F32, &[1.0])];
    let names = |group: &ParamGroup<Cpu>| {
        group.leaves.iter().map(|leaf| leaf.name().to_owned()).collect::<Vec<_>>()
    };
    let groups = ParamGroup::decay_matrices(leaves(), 0.1);
    assert_eq!(names(&groups[0]), ["embedding.weight", "head.weight"]);
    assert_eq!(groups[1].weight_decay, 0.0);
    let groups = ParamGroup::decay_matrices_except(leaves(), 0.1, &["embedding"]).unwrap();
    assert_eq!(names(&groups[0]), ["head.weight"]);
    assert_eq!(names(&groups[1]), ["embedding.weight", "head.bias"]);
    let text = message(ParamGroup::decay_matrices_except(leaves(), 0.1, &["embeding"]));
    assert!(text.contains("embeding") && text.contains("embedding.weight"), "{text}");
}

#[test]
fn a_step_that_cannot_be_taken_whole_changes_nothing() {
    let leaves = vec![leaf("a", F32, &[1.0]), leaf("b", F32, &[1.0, 2.0])];
    let mut optimizer = AdamW::of(leaves.clone(), adamw(0.1, 0.1)).unwrap();
    set_grad(&leaves[0], &[1.0]);
    set_grad(&leaves[1], &[1.0]);
    let text = message(optimizer.step());
    assert!(text.contains('b') && text.contains("[2]") && text.contains("[1]"), "{text}");
    leaves[1].set_grad(Some(tensor(&device(), F64, &[1.0, 1.0])));
    assert!(message(optimizer.step()).starts_with("the gradient of b: "));
    set_grad(&leaves[1], &[1.0, 1.0]);
    assert!(message(optimizer.step_scaled(f64::NAN)).starts_with("gradient scale = NaN"));
    leaves[1].release();
    assert!(message(optimizer.step()).contains('b'));
    assert_eq!(value(&leaves[0]), [1.0]);
    assert!(optimizer.state().is_empty());
}

#[test]
fn parameters_and_settings_that_cannot_be_stepped_with_are_refused() {
    let text = message(AdamW::of(vec![leaf("ids", DType::I64, &[1.0])], AdamWOptions::default()));
    assert!(text.starts_with("ids: ") && text.contains("float"), "{text}");
    // Also where no group takes its decay from the options.
    let groups = || vec![ParamGroup::new(vec![leaf("p", F32, &[1.0])], 0.1)];
    let text = message(AdamW::new(groups(), adamw(0.1, f64::NAN)));
    assert!(text.starts_with("weight decay = NaN"), "{text}");
}
