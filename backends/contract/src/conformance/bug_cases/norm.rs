//! Layer norm and softmax at the edges of their numbers.

use super::{Tensor, near};
use crate::conformance::composed::Composed;
use crate::{DType, Device, Norm, NormKind, NormOperands, Result};

const LAYER: Norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 };

/// The layer norm of one row and the gradient for the upstream gradient `dy`.
fn layer_norm<D: Device>(device: &D, x: &[f64], dy: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
    let shape = [1, x.len()];
    let x = Tensor::new(device, DType::F32, &shape, x)?;
    let statistics = Tensor::output(device, DType::F32, &[2, 1])?;
    let out = Tensor::output(device, DType::F32, &shape)?;
    let operands = NormOperands { x: x.view(), residual: None, weight: None, bias: None };
    device.normalize(LAYER, operands, None, statistics.view(), out.view())?;
    let dy = Tensor::new(device, DType::F32, &shape, dy)?;
    let dx = Tensor::output(device, DType::F32, &shape)?;
    device.normalize_backward(
        LAYER,
        x.view(),
        None,
        statistics.view(),
        dy.view(),
        None,
        dx.view(),
        None,
        None,
    )?;
    Ok((out.values()?, dx.values()?))
}

/// A promise; see its name.
pub fn num_02_the_variance_of_large_values_is_not_negative<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let (out, _) = layer_norm(device, &[1234.0; 8], &[1.0; 8])?;
        assert_eq!(out, [0.0; 8]);
        let (out, _) = layer_norm(device, &[40000.0, 40001.0, 40002.0, 40003.0], &[1.0; 4])?;
        near("large", &out, &[-1.3416354, -0.4472118, 0.4472118, 1.3416354], 1e-4);
        let (out, _) = layer_norm(device, &[0.0; 4], &[1.0; 4])?;
        assert_eq!(out, [0.0; 4]);
        let (_, dx) = layer_norm(device, &[1234.0; 4], &[1.0, 2.0, 3.0, 6.0])?;
        let want = [-632.4555320, -316.2277660, 0.0, 948.6832981];
        for (got, want) in dx.iter().zip(want) {
            assert!((got - want).abs() <= 1e-2, "{dx:?}");
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn num_03_each_row_of_a_softmax_is_shifted_by_its_own_maximum<D: Device>(
    device: &D,
) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let pairs = [[-1e30, -1e30], [-1000.0, -1001.0], [-3e38, 3e38], [f64::NEG_INFINITY, 0.0]];
        let x = Tensor::new(device, DType::F32, &[4, 2], pairs.as_flattened())?;
        let out = Tensor::output(device, DType::F32, &[4, 2])?;
        device.softmax(x.view(), out.view())?;
        let want = [0.5, 0.5, 0.7310586, 0.2689414, 0.0, 1.0, 0.0, 1.0];
        near("pairs", &out.values()?, &want, 1e-6);

        let x = Tensor::new(device, DType::F32, &[1, 3], &[10000.0, 9999.0, -10000.0])?;
        let out = Tensor::output(device, DType::F32, &[1, 3])?;
        device.softmax(x.view(), out.view())?;
        near("three", &out.values()?, &[0.7310586, 0.2689414, 0.0], 1e-6);
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}
