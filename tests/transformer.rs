//! The Transformer as its users meet it: names, errors, dropout, recomputation, threads, memory,
//! and models of one's own.

use sneppx::autograd::no_grad;
use sneppx::autograd::rules::CrossEntropyOptions;
use sneppx::contract::Memory;
use sneppx::cpu::Cpu;
use sneppx::nn::{
    Builder, Dropout, Init, KeyValueCache, Layer, Linear, LinearOptions, Module, NormLayer, Param,
    Pass, Position, Transformer, TransformerConfig, Unit,
};
use sneppx::optim::{AdamW, AdamWOptions, Optimizer};
use sneppx::{DType, Device, Result, Tensor};

type T = Tensor<Cpu>;
type Model = Transformer<Cpu>;

fn device() -> Cpu {
    Cpu::with_threads(2).expect("two threads")
}

fn model(device: &Cpu, config: TransformerConfig) -> Result<Model> {
    Transformer::new(config, &Builder::new(device, 7))
}

fn gpt2() -> TransformerConfig {
    TransformerConfig::gpt2(11, 12, 3, 2, 20, 8)
}

fn llama() -> TransformerConfig {
    TransformerConfig { num_kv_heads: 1, ..TransformerConfig::llama(11, 12, 3, 2, 20, 8) }
}

/// `[batch, length]` tokens below 11.
fn tokens(device: &Cpu, batch: usize, length: usize) -> Result<T> {
    let ids: Vec<u32> = (0..batch * length).map(|i| (i * 7 % 11) as u32).collect();
    T::from_slice(device, &ids, &[batch, length])
}

fn names(model: &impl Module<Cpu>) -> Vec<String> {
    model.named_parameters().into_iter().map(|(path, _)| path).collect()
}

fn values(model: &impl Module<Cpu>) -> Result<Vec<Vec<f32>>> {
    model.parameters().iter().map(|leaf| leaf.value()?.to_vec::<f32>()).collect()
}

fn grads(model: &impl Module<Cpu>) -> Result<Vec<Vec<f32>>> {
    let grad = |leaf: std::sync::Arc<sneppx::tensor::Leaf<Cpu>>| {
        leaf.grad().unwrap_or_else(|| panic!("{} has no gradient", leaf.name())).to_vec::<f32>()
    };
    model.parameters().into_iter().map(grad).collect()
}

fn loss(model: &Model, batch: usize, length: usize, pass: &Pass) -> Result<T> {
    let device = model.embedding.weight.leaf().value()?.device().clone();
    let ids = tokens(&device, batch, length)?;
    let targets: Vec<u32> = ids.to_vec::<u32>()?.iter().map(|id| (id + 3) % 11).collect();
    let targets = T::from_slice(&device, &targets, &[batch, length])?;
    model.losses(&ids, &targets, CrossEntropyOptions::default(), pass)?.mean_all()
}

#[test]
fn names_of_gpt2() -> Result<()> {
    let model = model(&device(), gpt2())?;
    let block = |layer: usize| {
        [
            "attention_norm.weight",
            "attention_norm.bias",
            "attention.qkv.weight",
            "attention.qkv.bias",
            "attention.out.weight",
            "attention.out.bias",
            "feed_forward_norm.weight",
            "feed_forward_norm.bias",
            "feed_forward.up.weight",
            "feed_forward.up.bias",
            "feed_forward.down.weight",
            "feed_forward.down.bias",
        ]
        .map(|name| format!("blocks.{layer}.{name}"))
    };
    let mut want = vec!["embedding.weight".to_owned(), "positions.weight".to_owned()];
    want.extend((0..2).flat_map(block));
    want.extend(["norm.weight".to_owned(), "norm.bias".to_owned()]);
    assert_eq!(names(&model), want);
    let shape = |path: &str| {
        let named = model.named_parameters();
        let (_, param) = named.iter().find(|(name, _)| name == path).expect("a name");
        param.leaf().shape().to_vec()
    };
    assert_eq!(shape("blocks.0.attention.qkv.weight"), [36, 12]);
    assert_eq!(shape("blocks.1.feed_forward.down.weight"), [12, 20]);
    assert_eq!(shape("positions.weight"), [8, 12]);
    Ok(())
}

#[test]
fn names_of_llama() -> Result<()> {
    let model = model(&device(), llama())?;
    let block = |layer: usize| {
        [
            "attention_norm.weight",
            "attention.qkv.weight",
            "attention.out.weight",
            "feed_forward_norm.weight",
            "feed_forward.gate.weight",
            "feed_forward.up.weight",
            "feed_forward.down.weight",
        ]
        .map(|name| format!("blocks.{layer}.{name}"))
    };
    let mut want = vec!["embedding.weight".to_owned()];
    want.extend((0..2).flat_map(block));
    want.extend(["norm.weight".to_owned(), "head.weight".to_owned()]);
    assert_eq!(names(&model), want);
    Ok(())
}

#[test]
fn a_parameter_is_called_by_its_path() -> Result<()> {
    for config in [gpt2(), llama(), TransformerConfig { tied: true, ..llama() }] {
        for (path, param) in model(&device(), config)?.named_parameters() {
            assert_eq!(path, param.leaf().name());
        }
    }
    Ok(())
}

#[test]
fn a_tied_weight_is_visited_twice_and_counted_once() -> Result<()> {
    let device = device();
    let tied = model(&device, gpt2())?;
    let free = model(&device, TransformerConfig { tied: false, ..gpt2() })?;
    assert_eq!(free.parameter_count() - tied.parameter_count(), 11 * 12);
    let blocks = 2 * (36 * 12 + 36 + 12 * 12 + 12 + 2 * 12 * 20 + 20 + 12 + 4 * 12);
    assert_eq!(tied.parameter_count(), 11 * 12 + 8 * 12 + blocks + 2 * 12);
    let mut paths = Vec::new();
    tied.visit("", &mut |path, param| {
        if param.leaf().id() == tied.embedding.weight.leaf().id() {
            paths.push(path.to_owned());
        }
    });
    assert_eq!(paths, ["embedding.weight", "head.weight"]);
    Ok(())
}

#[test]
fn attn_03_positions_beyond_the_table_are_refused() -> Result<()> {
    let device = device();
    for config in [gpt2(), llama()] {
        let model = model(&device, config)?;
        let pass = Pass::evaluation();
        model.forward(&tokens(&device, 1, 8)?, &pass)?;
        let text = model.forward(&tokens(&device, 1, 9)?, &pass).unwrap_err().to_string();
        assert!(text.contains('9') && text.contains("positions for 8"), "{text}");

        let cached = |len: usize| -> Result<usize> {
            let mut cache = KeyValueCache::new(&device, DType::F32, model.config(), 1)?;
            no_grad(|| model.forward_cached(&tokens(&device, 1, 6)?, &mut cache))?;
            no_grad(|| model.forward_cached(&tokens(&device, 1, len)?, &mut cache))?;
            Ok(cache.len())
        };
        assert_eq!(cached(2)?, 8);
        let text = cached(3).unwrap_err().to_string();
        assert!(text.contains('9') && text.contains("positions for 8"), "{text}");

        for bad in [11i64, -1, 1 << 32] {
            let ids = T::from_slice(&device, &[1, 2, 3, bad], &[2, 2])?;
            let text = model.forward(&ids, &pass).unwrap_err().to_string();
            let want = format!("index {bad} at position 3 is outside 0..11");
            assert!(text.contains(&want), "{text}");
        }
    }
    Ok(())
}

#[test]
fn attn_04_head_sizes_are_checked_at_construction() {
    let refused = |config: TransformerConfig, numbers: [&str; 2]| {
        let error = model(&device(), config).err().expect("an error").to_string();
        assert!(numbers.iter().all(|number| error.contains(number)), "{error}");
    };
    refused(TransformerConfig::llama(11, 520, 8, 1, 16, 8), ["65", "520"]);
    refused(TransformerConfig::gpt2(11, 10, 3, 1, 16, 8), ["10", "3"]);
    let grouped =
        TransformerConfig { num_kv_heads: 2, ..TransformerConfig::gpt2(11, 9, 3, 1, 4, 8) };
    refused(grouped, ["2", "3"]);
    let odd = model(&device(), TransformerConfig::gpt2(11, 9, 3, 1, 16, 8)).expect("a model");
    let ids = tokens(&device(), 1, 4).expect("tokens");
    odd.forward(&ids, &Pass::evaluation()).expect("logits");
}

#[test]
fn settings_that_make_no_sense_are_named() {
    for (config, name) in [
        (TransformerConfig { vocab_size: 0, ..gpt2() }, "vocab_size"),
        (TransformerConfig { dim: 0, ..gpt2() }, "dim"),
        (TransformerConfig { num_heads: 0, ..gpt2() }, "num_heads"),
        (TransformerConfig { num_kv_heads: 0, ..gpt2() }, "num_kv_heads"),
        (TransformerConfig { ffn_dim: 0, ..gpt2() }, "ffn_dim"),
        (TransformerConfig { max_seq_len: 0, ..gpt2() }, "max_seq_len"),
        (TransformerConfig { dropout: 1.0, ..gpt2() }, "dropout"),
        (TransformerConfig { dropout: f64::NAN, ..gpt2() }, "dropout"),
        (TransformerConfig { norm_epsilon: 0.0, ..gpt2() }, "norm_epsilon"),
        (TransformerConfig { position: Position::Rotary(-1.0), ..llama() }, "rotary base"),
    ] {
        let error = model(&device(), config).err().expect("an error").to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn shapes_that_disagree_are_named() -> Result<()> {
    let device = device();
    let model = model(&device, gpt2())?;
    let pass = Pass::evaluation();
    let text = model.forward(&T::from_slice(&device, &[1u32], &[1])?, &pass).unwrap_err();
    assert!(text.to_string().contains("[batch, length]"), "{text}");
    let options = CrossEntropyOptions::default();
    let (ids, targets) = (tokens(&device, 2, 3)?, tokens(&device, 3, 2)?);
    let text = model.losses(&ids, &targets, options, &pass).unwrap_err().to_string();
    assert!(text.contains("[2, 3]") && text.contains("[3, 2]"), "{text}");
    let floats = T::zeros(&device, DType::F32, &[1, 2])?;
    let text = model.forward(&floats, &pass).unwrap_err().to_string();
    assert!(text.contains("f32"), "{text}");
    Ok(())
}

#[test]
fn seed_01_first_values_depend_on_seed_and_path_alone() -> Result<()> {
    let device = device();
    let first = values(&model(&device, gpt2())?)?;
    assert_eq!(first, values(&model(&device, gpt2())?)?, "equal seeds");
    let other = Transformer::new(gpt2(), &Builder::new(&device, 8))?;
    assert_ne!(first, values(&other)?, "another seed");

    // One more block and a head of its own change nothing that was there before.
    let larger = TransformerConfig { num_layers: 3, tied: false, ..gpt2() };
    let larger = model(&device, larger)?.named_parameters();
    let small = model(&device, gpt2())?.named_parameters();
    for (path, param) in small {
        if path.ends_with("out.weight") || path.ends_with("down.weight") {
            continue; // Their deviation depends on the number of blocks.
        }
        let (_, again) = larger.iter().find(|(name, _)| *name == path).expect("the same name");
        let [one, two] = [&param, again].map(|param| param.leaf().value());
        assert_eq!(one?.to_vec::<f32>()?, two?.to_vec::<f32>()?, "{path}");
    }
    let (wide, narrow) = (Cpu::with_threads(3)?, Cpu::with_threads(1)?);
    assert_eq!(values(&model(&wide, gpt2())?)?, values(&model(&narrow, gpt2())?)?);
    Ok(())
}

#[test]
fn seed_01_dropout_follows_the_sample_and_not_the_call() -> Result<()> {
    let device = device();
    let layer = Dropout::new(&Builder::new(&device, 1).at("place"), 0.5)?;
    let ones = T::ones(&device, DType::F32, &[2, 1000])?;
    let mask = |x: &T, pass: Pass| -> Result<Vec<f32>> { layer.forward(x, &pass)?.to_vec() };
    let both = mask(&ones, Pass::training(42, 3, 0))?;
    assert_eq!(both, mask(&ones, Pass::training(42, 3, 0))?, "again");

    // Two ranks with one sample each see what one rank with both sees.
    let one = ones.slice(0, 0, 1)?;
    let ranks = [mask(&one, Pass::training(42, 3, 0))?, mask(&one, Pass::training(42, 3, 1))?];
    assert_eq!(ranks.concat(), both);

    let agreement = |a: &[f32], b: &[f32]| a.iter().zip(b).filter(|(a, b)| a == b).count();
    let elsewhere = Dropout::new(&Builder::new(&device, 1).at("elsewhere"), 0.5)?;
    let others = [
        ranks[1].clone(),
        mask(&one, Pass::training(42, 4, 0))?,
        mask(&one, Pass::training(43, 3, 0))?,
        elsewhere.forward(&one, &Pass::training(42, 3, 0))?.to_vec()?,
    ];
    for other in &others {
        let same = agreement(&ranks[0], other);
        assert!((420..=580).contains(&same), "{same} places agree");
    }
    assert_eq!(mask(&ones, Pass::evaluation())?, [1.0; 2000]);
    assert!(ranks[0].iter().all(|&value| value == 0.0 || value == 2.0));
    Ok(())
}

/// Two steps of training, with `between` run between them: losses and gradients.
fn two_steps(between: impl Fn(&Model) -> Result<()>) -> Result<Vec<Vec<f32>>> {
    let model = model(&device(), TransformerConfig { dropout: 0.3, ..gpt2() })?;
    let mut seen = Vec::new();
    for step in 0..2 {
        model.parameters().iter().for_each(|leaf| leaf.clear_grad());
        let loss = loss(&model, 2, 8, &Pass::training(42, step, 0))?;
        loss.backward()?;
        seen.push(loss.to_vec::<f32>()?);
        seen.extend(grads(&model)?);
        between(&model)?;
    }
    Ok(seen)
}

#[test]
fn seed_01_an_evaluation_in_between_changes_nothing() -> Result<()> {
    let plain = two_steps(|_| Ok(()))?;
    assert_eq!(plain, two_steps(|_| Ok(()))?);
    let evaluated = two_steps(|model| {
        no_grad(|| loss(model, 1, 5, &Pass::evaluation()))?;
        no_grad(|| loss(model, 1, 5, &Pass::training(9, 9, 9)))?;
        Ok(())
    })?;
    assert_eq!(plain, evaluated);
    Ok(())
}

#[test]
fn recomputation_changes_no_bit() -> Result<()> {
    for config in [gpt2(), llama()] {
        let model = model(&device(), TransformerConfig { dropout: 0.2, ..config })?;
        let mut runs = Vec::new();
        for recomputes in [false, true] {
            model.set_recompute(recomputes);
            model.parameters().iter().for_each(|leaf| leaf.clear_grad());
            let loss = loss(&model, 2, 8, &Pass::training(3, 1, 4))?;
            loss.backward()?;
            runs.push((loss.to_vec::<f32>()?, grads(&model)?));
        }
        assert!(runs[0] == runs[1]);
    }
    Ok(())
}

/// Losses and parameters of three steps on a device with `threads` threads.
fn trained(threads: usize, dtype: DType, config: &TransformerConfig) -> Result<Vec<Vec<f64>>> {
    let device = Cpu::with_threads(threads)?;
    let builder = Builder::new(&device, 5).with_dtype(dtype)?;
    let model = Transformer::new(config.clone(), &builder)?;
    let mut optimizer = AdamW::of(model.parameters(), AdamWOptions::default())?;
    let mut seen = Vec::new();
    for step in 0..3 {
        let loss = loss(&model, 6, 48, &Pass::training(2, step, 0))?;
        optimizer.zero_grad();
        loss.backward()?;
        optimizer.step()?;
        seen.push(loss.to_host()?.to_f64());
    }
    for leaf in model.parameters() {
        seen.push(leaf.value()?.to_host()?.to_f64());
    }
    Ok(seen)
}

#[test]
fn the_number_of_threads_changes_no_bit() -> Result<()> {
    let base =
        TransformerConfig { dropout: 0.1, ..TransformerConfig::gpt2(300, 96, 4, 2, 200, 48) };
    let grouped = TransformerConfig {
        dropout: 0.1,
        num_kv_heads: 2,
        ..TransformerConfig::llama(300, 96, 4, 2, 200, 48)
    };
    for (dtype, config) in [(DType::F32, &base), (DType::F32, &grouped), (DType::BF16, &base)] {
        let one = trained(1, dtype, config)?;
        assert!(one.iter().flatten().all(|value| value.is_finite()));
        for threads in [2, 3] {
            assert!(one == trained(threads, dtype, config)?, "{threads} threads in {dtype}");
        }
    }
    Ok(())
}

#[test]
fn live_memory_stays_flat_over_100_steps() -> Result<()> {
    let device = device();
    let model = model(&device, TransformerConfig { dropout: 0.1, ..gpt2() })?;
    let mut optimizer = AdamW::of(model.parameters(), AdamWOptions::default())?;
    let mut live = Vec::new();
    for step in 0..100 {
        let loss = loss(&model, 2, 8, &Pass::training(2, step, 0))?;
        optimizer.zero_grad();
        loss.backward()?;
        optimizer.step()?;
        drop(loss);
        let memory = device.memory();
        live.push((memory.live_bytes, memory.peak_bytes, memory.system_allocations));
    }
    assert!(live[2..].iter().all(|after| *after == live[2]), "{live:?}");
    drop((model, optimizer));
    assert_eq!(device.memory().live_bytes, 0);
    Ok(())
}

#[test]
fn a_model_learns_what_it_is_shown() -> Result<()> {
    for config in [gpt2(), llama()] {
        let model = model(&device(), config)?;
        let options = AdamWOptions { learning_rate: 1e-2, ..Default::default() };
        let mut optimizer = AdamW::of(model.parameters(), options)?;
        let mut losses = Vec::new();
        for step in 0..60 {
            let loss = loss(&model, 2, 8, &Pass::training(2, step, 0))?;
            optimizer.zero_grad();
            loss.backward()?;
            optimizer.step()?;
            losses.push(loss.item()?);
        }
        assert!((losses[0] - 11f64.ln()).abs() < 0.1, "a new model knows nothing: {}", losses[0]);
        assert!(losses[59] < 0.1, "{losses:?}");
    }
    Ok(())
}

#[derive(Module)]
struct Perceptron<D: Device> {
    layers: Vec<Unit<D, Linear<D>>>,
    norm: Option<NormLayer<D>>,
    scale: Param<D>,
    width: usize,
    label: String,
    #[module(skip)]
    activations: Vec<&'static str>,
}

#[derive(Module)]
#[module(device = D)]
struct Pair<M: Module<D>, D: Device> {
    left: M,
    right: std::sync::Arc<M>,
    #[module(skip)]
    device: std::marker::PhantomData<D>,
}

#[derive(Module)]
#[module(device = Cpu)]
struct Fixed {
    r#type: Linear<Cpu>,
}

fn perceptron<D: Device>(builder: &Builder<D>, norm: bool) -> Result<Perceptron<D>> {
    let layer = |at: usize| {
        let place = builder.at("layers").at(&at.to_string());
        Ok(Unit::new(Linear::new(&place, 3, 3, LinearOptions { bias: at == 1, init: None })?))
    };
    let normed = || NormLayer::layer_norm(&builder.at("norm"), 3, 1e-5, None);
    Ok(Perceptron {
        layers: (0..2).map(layer).collect::<Result<_>>()?,
        norm: norm.then(normed).transpose()?,
        scale: builder.param("scale", &[], Init::Constant(1.0))?,
        width: 3,
        label: "small".into(),
        activations: vec!["none"],
    })
}

#[test]
fn models_of_ones_own_are_walked_in_declaration_order() -> Result<()> {
    let device = device();
    let root = Builder::new(&device, 1);
    let full = perceptron(&root, true)?;
    let want = ["layers.0.weight", "layers.1.weight", "layers.1.bias", "norm.weight", "scale"];
    assert_eq!(names(&full), want);
    assert_eq!(full.parameter_count(), 9 + 9 + 3 + 3 + 1);
    assert_eq!((full.width, full.label.as_str(), full.activations.len()), (3, "small", 1));
    let bare = perceptron(&root, false)?;
    assert_eq!(names(&bare), ["layers.0.weight", "layers.1.weight", "layers.1.bias", "scale"]);

    let shared = std::sync::Arc::new(perceptron(&root.at("right"), false)?);
    let pair = Pair {
        left: perceptron(&root.at("left"), false)?,
        right: shared,
        device: std::marker::PhantomData::<Cpu>,
    };
    assert_eq!(names(&pair)[3..5], ["left.scale", "right.layers.0.weight"]);
    for (path, param) in pair.named_parameters() {
        assert_eq!(path, param.leaf().name());
    }
    let fixed = Fixed { r#type: Linear::new(&root.at("type"), 2, 2, Default::default())? };
    assert_eq!(names(&fixed), ["type.weight", "type.bias"]);
    Ok(())
}

#[test]
fn freezing_reaches_every_parameter() -> Result<()> {
    let model = model(&device(), gpt2())?;
    model.set_trainable(false);
    assert!(!loss(&model, 1, 4, &Pass::training(1, 0, 0))?.needs_grad());
    model.norm.set_trainable(true);
    for recomputes in [false, true] {
        model.set_recompute(recomputes);
        model.parameters().iter().for_each(|leaf| leaf.clear_grad());
        loss(&model, 1, 4, &Pass::training(1, 0, 0))?.backward()?;
        for (path, param) in model.named_parameters() {
            let trained = path.starts_with("norm.");
            assert_eq!(param.leaf().grad().is_some(), trained, "{path}");
        }
    }
    Ok(())
}
