//! Where parameters and gradients may lie in memory, and steps on slices of flat buffers.

use sneppx::DType::{F32, F64, I64};
use sneppx::cpu::Cpu;
use sneppx::optim::{AdamW, AdamWOptions, AdamWRun, Optimizer, Sgd, SgdOptions, SgdRun};
use sneppx::tensor::Leaf;
use sneppx::{DType, Tensor};
use sneppx_contract::Layout;

use crate::leaves::{device, leaf, message, numbers_of, set_grad, tensor, value};

const OPTIONS: AdamWOptions =
    AdamWOptions { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1 };

fn slice(flat: &Tensor<Cpu>, start: usize, len: usize) -> Tensor<Cpu> {
    Tensor::from_buffer(device(), flat.buffer().clone(), Layout::flat(start, len)).unwrap()
}

fn wave(len: usize) -> Vec<f64> {
    (0..len).map(|i| (i as f64 * 0.7).sin()).collect()
}

#[test]
fn slices_of_flat_buffers_step_like_the_whole() {
    let len = 5000;
    let cuts = [0, 1, 17, 2048, 4999, len];
    let whole = leaf("p", F32, &wave(len));
    let mut optimizer = AdamW::of(vec![whole.clone()], OPTIONS).unwrap();
    let flat = tensor(&device(), F32, &wave(len));
    let moments = [0, 1].map(|_| Tensor::zeros(&device(), F32, &[len]).unwrap());
    let mut states: Vec<_> = cuts
        .windows(2)
        .map(|cut| {
            let part = |moment| slice(moment, cut[0], cut[1] - cut[0]);
            AdamWRun::over(part(&moments[0]), part(&moments[1]), 0).unwrap()
        })
        .collect();
    for round in 1..4 {
        let gradients: Vec<f64> = wave(len).iter().map(|g| g * f64::from(round)).collect();
        set_grad(&whole, &gradients);
        optimizer.step_scaled(0.5).unwrap();
        let gradients = tensor(&device(), F32, &gradients);
        for (state, cut) in states.iter_mut().zip(cuts.windows(2)) {
            let part = |flat| slice(flat, cut[0], cut[1] - cut[0]);
            state.step(&OPTIONS, &part(&flat), &part(&gradients), 0.5).unwrap();
        }
    }
    assert!(states.iter().all(|state| state.step_count() == 3));
    assert_eq!(value(&whole), numbers_of(&flat));
    let state = optimizer.state();
    for ((_, expected), found) in state[0].tensors.iter().zip(&moments) {
        assert_eq!(numbers_of(expected), numbers_of(found));
    }
}

#[test]
fn values_and_gradients_with_gaps_step_like_packed_ones() {
    let (rows, columns) = (3, 4);
    let shape = [rows, columns];
    let packed = |values: &[f64]| tensor(&device(), F64, values).reshape(&shape).unwrap().detach();
    let (start, gradients) = (wave(12), wave(24)[12..].to_vec());
    let plain = Leaf::new("plain", packed(&start), true);
    plain.set_grad(Some(packed(&gradients)));

    // The same numbers, stored by columns.
    let by_columns = |values: &[f64]| {
        let turned: Vec<f64> = (0..12).map(|i| values[(i % rows) * columns + i / rows]).collect();
        tensor(&device(), F64, &turned)
            .reshape(&[columns, rows])
            .unwrap()
            .transpose(0, 1)
            .unwrap()
            .detach()
    };
    let memory = by_columns(&start);
    let gaps = Leaf::new("gaps", memory.clone(), true);
    gaps.set_grad(Some(by_columns(&gradients)));
    assert!(!gaps.value().unwrap().layout().is_contiguous());

    let mut optimizer = AdamW::of(vec![plain.clone(), gaps.clone()], OPTIONS).unwrap();
    optimizer.step().unwrap();
    assert_eq!(value(&plain), value(&gaps));
    assert_eq!(numbers_of(&memory), value(&gaps), "the value must stay in its owner's memory");
    optimizer.step().unwrap();
    assert_eq!(value(&plain), value(&gaps));
}

#[test]
fn a_value_whose_elements_share_memory_gets_memory_of_its_own() {
    let shared = tensor(&device(), F64, &[1.0]).broadcast_to(&[3]).unwrap().detach();
    let leaf = Leaf::new("p", shared.clone(), true);
    set_grad(&leaf, &[1.0, 0.0, -1.0]);
    let options = SgdOptions { learning_rate: 1.0, ..Default::default() };
    Sgd::of(vec![leaf.clone()], options).unwrap().step().unwrap();
    assert_eq!(value(&leaf), [0.0, 1.0, 2.0]);
    assert_eq!(numbers_of(&shared), [1.0; 3]);
}

#[test]
fn scalar_and_empty_parameters_step() {
    let scalar = Leaf::new("scalar", Tensor::scalar(&device(), 1.0f64).unwrap(), true);
    let empty = Leaf::new("empty", Tensor::zeros(&device(), F64, &[0, 3]).unwrap(), true);
    scalar.set_grad(Some(Tensor::scalar(&device(), 0.0f64).unwrap()));
    empty.set_grad(Some(Tensor::zeros(&device(), F64, &[0, 3]).unwrap()));
    let leaves = vec![scalar.clone(), empty];
    AdamW::of(leaves.clone(), OPTIONS).unwrap().step().unwrap();
    assert_eq!(value(&scalar), [0.99]);
    let options = SgdOptions { momentum: 0.9, ..Default::default() };
    Sgd::of(leaves, options).unwrap().step().unwrap();
    assert!(AdamW::<Cpu>::of(vec![], OPTIONS).unwrap().step().is_ok());
}

#[test]
fn runs_that_do_not_fit_are_refused_and_the_count_stays() {
    let zeros = |dtype: DType, len: usize| Tensor::zeros(&device(), dtype, &[len]).unwrap();
    let mut state = AdamWRun::zeros(&device(), F32, 4).unwrap();
    let mut refused = |param: &Tensor<Cpu>, grad: &Tensor<Cpu>, options: &AdamWOptions| {
        let text = message(state.step(options, param, grad, 1.0));
        assert_eq!(state.step_count(), 0);
        text
    };
    refused(&zeros(F32, 3), &zeros(F32, 3), &OPTIONS);
    refused(&zeros(F32, 4), &zeros(F32, 3), &OPTIONS);
    refused(&zeros(F32, 4), &zeros(F64, 4), &OPTIONS);
    refused(&zeros(F64, 4), &zeros(F64, 4), &OPTIONS);
    let text = refused(&zeros(F32, 4), &zeros(F32, 4), &AdamWOptions { beta1: 1.5, ..OPTIONS });
    assert!(text.starts_with("beta1 = 1.5"), "{text}");
    assert!(message(AdamWRun::zeros(&device(), I64, 4)).contains("float"));
    let text = message(AdamWRun::over(zeros(F32, 4), zeros(F32, 3), 1));
    assert!(text.contains("first moment [4]") && text.contains("second moment [3]"), "{text}");

    let options = SgdOptions { momentum: 0.9, ..Default::default() };
    let mut plain = SgdRun::over(None, 0).unwrap();
    let text = message(plain.step(&options, &zeros(F32, 4), &zeros(F32, 4), 1.0));
    assert!(text.starts_with("momentum = 0.9"), "{text}");
    assert_eq!(plain.step_count(), 0);
}
