//! What is refused, and what is not though it is empty.

use super::{NUMBERS, holds, part, ranks_are_numbered_in_order, upload};
use crate::{Buffer, Communicator, DType, Error, Memory, ReduceOp, Result};

/// A promise; see its name.
pub fn a_root_that_is_no_rank_is_refused<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    for root in [world.size(), usize::MAX] {
        let buffer = upload::<C>(device, DType::F32, &[1.0])?;
        match world.broadcast(buffer, root) {
            Err(error @ Error::InvalidArgument { .. }) => {
                assert!(error.to_string().contains(&root.to_string()), "{error}");
            }
            other => panic!("root {root} of {} ranks: {other:?}", world.size()),
        }
    }
    Ok(())
}

/// A promise; see its name.
pub fn lengths_that_do_not_divide_are_refused<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    let len = world.size() + 1;
    let values = part(world.rank(), len);
    let chunks = upload::<C>(device, DType::F32, &values)?;
    let exchanged = world.all_to_all(chunks.clone());
    let reduced = world.reduce_scatter(chunks.clone(), ReduceOp::Sum);
    if world.size() == 1 {
        // Everything divides by 1.
        holds::<C>("all_to_all", device, &exchanged?.wait()?, DType::F32, &values)?;
        return holds::<C>("reduce_scatter", device, &reduced?.wait()?, DType::F32, &values);
    }
    for (what, result) in [("all_to_all", exchanged), ("reduce_scatter", reduced)] {
        match result {
            Err(error @ Error::Shape { .. }) => {
                let text = error.to_string();
                let both = [len, world.size()].iter().all(|n| text.contains(&n.to_string()));
                assert!(both && text.contains(what), "{text}");
            }
            other => panic!("{what} of {len} elements on {} ranks: {other:?}", world.size()),
        }
    }
    Ok(())
}

/// A promise; see its name.
pub fn bytes_are_no_numbers_to_reduce<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    let bytes = upload::<C>(device, DType::U8, &vec![1.0; world.size()])?;
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
        let results =
            [world.all_reduce(bytes.clone(), op), world.reduce_scatter(bytes.clone(), op)];
        for result in results {
            assert!(matches!(result, Err(Error::DType { got: DType::U8, .. })), "{result:?}");
        }
    }
    Ok(())
}

/// A promise; see its name.
pub fn empty_buffers_travel_too<C: Communicator>(device: &C::Device, world: &C) -> Result<()> {
    for dtype in NUMBERS {
        let empty = || device.alloc(dtype, 0);
        let results = [
            world.broadcast(empty()?, 0)?.wait()?,
            world.all_gather(empty()?)?.wait()?,
            world.all_to_all(empty()?)?.wait()?,
            world.all_reduce(empty()?, ReduceOp::Sum)?.wait()?,
            world.reduce_scatter(empty()?, ReduceOp::Max)?.wait()?,
        ];
        for result in results {
            assert_eq!((result.len(), result.dtype()), (0, dtype));
        }
    }
    Ok(())
}

/// A promise; see its name.
pub fn a_refused_call_leaves_the_world_usable<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    a_root_that_is_no_rank_is_refused(device, world)?;
    bytes_are_no_numbers_to_reduce(device, world)?;
    ranks_are_numbered_in_order(device, world)?;
    world.barrier()
}
