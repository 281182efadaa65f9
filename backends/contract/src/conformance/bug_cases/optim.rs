//! AdamW steps and the norms of gradients.

use super::{EXACT, Tensor, all_finite, near};
use crate::conformance::composed::Composed;
use crate::{AdamWStep, DType, Device, Result, SUM_BLOCK};

const ADAMW: AdamWStep = AdamWStep {
    learning_rate: 0.1,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weight_decay: 0.0,
    step: 1,
    gradient_scale: 1.0,
};

/// The parameters after each of the steps, one gradient per step; `spec.step` is counted here.
fn train<D: Device>(
    device: &D,
    dtype: DType,
    spec: AdamWStep,
    start: &[f64],
    gradients: &[&[f64]],
) -> Result<Vec<Vec<f64>>> {
    let shape = [start.len()];
    let param = Tensor::new(device, dtype, &shape, start)?;
    let zeros = vec![0.0; start.len()];
    let m = Tensor::new(device, dtype.accumulator(), &shape, &zeros)?;
    let v = Tensor::new(device, dtype.accumulator(), &shape, &zeros)?;
    let mut after = Vec::new();
    for (step, gradient) in (1..).zip(gradients) {
        let gradient = Tensor::new(device, dtype, &shape, gradient)?;
        let spec = AdamWStep { step, ..spec };
        device.adamw_step(spec, param.view(), gradient.view(), m.view(), v.view())?;
        all_finite("first moment", &m.values()?);
        all_finite("second moment", &v.values()?);
        after.push(param.values()?);
    }
    Ok(after)
}

/// A promise; see its name.
pub fn adam_01_decay_is_decoupled_from_the_gradient<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let spec = AdamWStep { weight_decay: 0.1, ..ADAMW };
        let after = train(device, DType::F32, spec, &[1.0], &[&[0.1]])?;
        near("gradient 0.1", &after[0], &[0.89000001], 1e-7);
        let after = train(device, DType::F32, spec, &[1.0], &[&[0.0]])?;
        assert_eq!(after[0], [f64::from(0.99f32)], "decay alone");
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn adam_02_epsilon_is_added_to_the_root_of_the_corrected_moment<D: Device>(
    device: &D,
) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let spec = AdamWStep { learning_rate: 1.0, epsilon: 1e-3, ..ADAMW };
        for (dtype, tolerance) in EXACT {
            let after = train(device, dtype, spec, &[0.0], &[&[1e-3], &[2e-3]])?;
            near("parameter", &after.concat(), &[-0.5, -1.0912798946], tolerance);
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn adam_06_a_zero_gradient_leaves_f16_parameters_alone<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let spec = AdamWStep { learning_rate: 1e-3, ..ADAMW };
        let start = [1.0, -2.0, 0.5];
        for dtype in [DType::F16, DType::BF16] {
            let after = train(device, dtype, spec, &start, &[&[0.0; 3][..]; 3])?;
            assert_eq!(after, [start; 3], "{dtype}");
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn clip_06_squares_of_f16_gradients_do_not_overflow<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        for count in [1, 64, SUM_BLOCK + 64] {
            let gradient = Tensor::new(device, DType::F16, &[count], &vec![300.0; count])?;
            let sums = Tensor::output(device, DType::F32, &[count.div_ceil(SUM_BLOCK)])?;
            device.sums_of_squares(gradient.view(), sums.view())?;
            let norm = sums.values()?.iter().sum::<f64>().sqrt();
            near("norm", &[norm], &[300.0 * (count as f64).sqrt()], 1e-6);
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}
