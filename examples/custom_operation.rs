//! An operation with a derivative of its own: softplus, `log(1 + exp(x))`, checked numerically.

use sneppx::autograd::CustomOperation;
use sneppx::cpu::Cpu;
use sneppx::{Device, Result, Tensor};

/// `log(1 + exp(x))`, written so that large `x` do not overflow.
struct Softplus;

impl<D: Device> CustomOperation<D> for Softplus {
    fn name(&self) -> &'static str {
        "softplus"
    }

    fn forward(&self, inputs: &[Tensor<D>]) -> Result<Tensor<D>> {
        // max(x, 0) + log(1 + exp(-|x|))
        let x = &inputs[0];
        x.relu()?.add(&x.abs()?.neg()?.exp()?.add_scalar(1.0)?.log()?)
    }

    fn backward(
        &self,
        inputs: &[Tensor<D>],
        _output: &Tensor<D>,
        grad: &Tensor<D>,
    ) -> Result<Vec<Option<Tensor<D>>>> {
        Ok(vec![Some(grad.mul(&inputs[0].sigmoid()?)?)])
    }
}

fn main() -> Result<()> {
    let device = Cpu::new(Default::default())?;
    let values = [-50.0, -1.0, 0.0, 2.0, 800.0];
    let x = Tensor::from_slice(&device, &values, &[5])?.requires_grad()?;
    let y = Tensor::custom(Softplus, &[&x])?;
    y.sum_all()?.backward()?;
    let slopes = x.grad().expect("x took part").to_vec::<f64>()?;
    println!("softplus({values:?}) = {:?}", y.to_vec::<f64>()?);
    println!("slopes = {slopes:?}");

    let step = 1e-6;
    let at = |shift: f64| Tensor::custom(Softplus, &[&x.detach().add_scalar(shift)?]);
    let above = at(step)?.to_vec::<f64>()?;
    let below = at(-step)?.to_vec::<f64>()?;
    for ((above, below), slope) in above.iter().zip(&below).zip(&slopes) {
        let measured = (above - below) / (2.0 * step);
        assert!((measured - slope).abs() < 1e-6, "measured {measured}, derived {slope}");
    }
    println!("the slopes agree with differences");
    Ok(())
}
