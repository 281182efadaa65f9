//! When a unit calls its hooks, and what its parameters may do in between.

use std::sync::{Arc, Mutex};

use sneppx::cpu::Cpu;
use sneppx::nn::{Builder, Layer, Linear, LinearOptions, Module, Pass, Unit, UnitHooks};
use sneppx::tensor::Leaf;
use sneppx::{DType, Result, Tensor};

type T = Tensor<Cpu>;

/// Writes down what it hears, and takes the parameters away when they are not needed.
struct Gatherer {
    name: &'static str,
    log: Arc<Mutex<Vec<String>>>,
    leaves: Vec<Arc<Leaf<Cpu>>>,
    away: Mutex<Vec<T>>,
}

impl Gatherer {
    fn hear(&self, event: &str) {
        self.log.lock().expect("no panic").push(format!("{event} {}", self.name));
    }

    fn free(&self) {
        let values = self.leaves.iter().filter_map(|leaf| leaf.release());
        self.away.lock().expect("no panic").extend(values);
    }

    fn gather(&self) -> Result<()> {
        let values: Vec<T> = self.away.lock().expect("no panic").drain(..).collect();
        self.leaves.iter().zip(values).try_for_each(|(leaf, value)| leaf.set_value(value))
    }
}

impl UnitHooks<Cpu> for Gatherer {
    fn before_forward(&self) -> Result<()> {
        self.hear("before forward");
        self.gather()
    }

    fn after_forward(&self) -> Result<()> {
        self.hear("after forward");
        self.free();
        Ok(())
    }

    fn before_backward(&self) -> Result<()> {
        self.hear("before backward");
        self.gather()
    }

    fn after_backward(&self) -> Result<()> {
        self.hear("after backward");
        self.free();
        Ok(())
    }
}

/// Gradients of two units in a row, with parameters that come and go, and what was heard.
fn run(hooks: bool, recomputes: bool) -> Result<(Vec<Vec<f32>>, Vec<String>)> {
    let device = Cpu::with_threads(1)?;
    let builder = Builder::new(&device, 1);
    let unit = |name: &str| {
        let layer = Linear::new(&builder.at(name), 3, 3, LinearOptions::default())?;
        Ok::<_, sneppx::Error>(Unit::new(layer))
    };
    let units = [unit("a")?, unit("b")?];
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut leaves = Vec::new();
    for (unit, name) in units.iter().zip(["a", "b"]) {
        unit.set_recompute(recomputes);
        leaves.extend(unit.parameters());
        let gatherer =
            Gatherer { name, log: log.clone(), leaves: unit.parameters(), away: Mutex::default() };
        if hooks {
            gatherer.free();
            unit.set_hooks(Some(Arc::new(gatherer)));
        }
    }
    let x = T::full(&device, DType::F32, &[2, 3], 0.5)?.requires_grad()?;
    let pass = Pass::training(1, 0, 0);
    let out = units[1].forward(&units[0].forward(&x, &pass)?.tanh()?, &pass)?;
    out.square()?.sum_all()?.backward()?;
    leaves.push(x.leaf().expect("a leaf").clone());
    let grads = leaves.iter().map(|leaf| leaf.grad().expect("a gradient").to_vec());
    let grads = grads.collect::<Result<_>>()?;
    let heard = log.lock().expect("no panic").clone();
    Ok((grads, heard))
}

#[test]
fn parameters_may_come_and_go_around_each_unit() -> Result<()> {
    let (want, silence) = run(false, false)?;
    assert!(silence.is_empty());
    let order = [
        "before forward a",
        "after forward a",
        "before forward b",
        "after forward b",
        "before backward b",
        "after backward b",
        "before backward a",
        "after backward a",
    ];
    for recomputes in [false, true] {
        let (grads, heard) = run(true, recomputes)?;
        assert_eq!(grads, want);
        assert_eq!(heard, order, "recomputes: {recomputes}");
    }
    Ok(())
}
