//! Operations of users: forward and derivative written by hand.

use sneppx_contract::{Device, Error, Result};

use crate::tensor::{Accumulate, Gradient, Recording, Rule, Tensor, record};

/// An operation with a derivative of its own.
///
/// `examples/custom_operation.rs` shows one from end to end.
pub trait CustomOperation<D: Device>: Send + Sync + 'static {
    /// The name that appears in messages.
    fn name(&self) -> &'static str;

    /// The result; nothing in here is recorded.
    ///
    /// # Errors
    /// Whatever makes the inputs unusable.
    fn forward(&self, inputs: &[Tensor<D>]) -> Result<Tensor<D>>;

    /// The gradient of each input, given that of the output; `None` where there is none. Called
    /// once per forward call whose result takes part in a backward walk.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn backward(
        &self,
        inputs: &[Tensor<D>],
        output: &Tensor<D>,
        grad: &Tensor<D>,
    ) -> Result<Vec<Option<Tensor<D>>>>;
}

impl<D: Device> Tensor<D> {
    /// Runs `operation` on `inputs` and records its derivative.
    ///
    /// # Errors
    /// Whatever the operation returns.
    pub fn custom(operation: impl CustomOperation<D>, inputs: &[&Tensor<D>]) -> Result<Tensor<D>> {
        let values: Vec<Tensor<D>> = inputs.iter().map(|input| input.detach()).collect();
        let output = {
            let _guard = Recording::set(false);
            operation.forward(&values)?.detach()
        };
        Ok(record(output.clone(), inputs, || Box::new(Custom { operation, values, output })))
    }
}

struct Custom<D: Device, O> {
    operation: O,
    values: Vec<Tensor<D>>,
    output: Tensor<D>,
}

impl<D: Device, O: CustomOperation<D>> Rule<D> for Custom<D, O> {
    fn name(&self) -> &'static str {
        self.operation.name()
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let grads = self.operation.backward(&self.values, &self.output, grad.tensor())?;
        if grads.len() != self.values.len() {
            let reason = format!("expected one gradient for each of {} inputs", self.values.len());
            return Err(Error::invalid("gradients", grads.len(), reason));
        }
        for (input, (value, grad)) in self.values.iter().zip(grads).enumerate() {
            let Some(grad) = grad else { continue };
            if grad.shape() != value.shape() {
                let name = self.operation.name();
                let (grad, value) = (grad.shape(), value.shape());
                return Err(Error::shapes_differ(name, "gradient", grad, "input", value));
            }
            inputs.add(input, grad)?;
        }
        Ok(())
    }
}
