//! Filling, copying, converting, and functions of each element.

use super::placed::{Lie, Placed, rounded};
use crate::{DType, Device, Result};

/// A filled view holds the value as its dtype rounds it, and its neighbours hold what they held.
pub fn fill_rounds_to_the_dtype<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::ALL {
        for lie in Lie::ALL {
            for shape in [&[][..], &[1], &[7], &[3, 5], &[2, 3, 65], &[2, 0]] {
                let out = Placed::output(device, dtype, shape, lie)?;
                device.fill(3.3125, out.view())?;
                let want = vec![rounded(dtype, &[3.3125])[0]; shape.iter().product()];
                assert_eq!(out.values()?, want, "{dtype} {lie:?} {shape:?}");
            }
        }
    }
    Ok(())
}
