//! What each collective gives.

use super::{LENGTHS, NUMBERS, holds, part, upload};
use crate::{Communicator, DType, HostSlice, HostVec, Memory, ReduceOp, Result};

/// A promise; see its name.
pub fn a_broadcast_gives_every_rank_the_values_of_the_root<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    for root in 0..world.size() {
        for dtype in DType::ALL {
            for len in LENGTHS {
                let buffer = upload::<C>(device, dtype, &part(world.rank(), len))?;
                let got = world.broadcast(buffer, root)?.wait()?;
                holds::<C>("broadcast", device, &got, dtype, &part(root, len))?;
            }
        }
    }
    Ok(())
}

/// A promise; see its name.
pub fn all_gather_puts_shards_in_rank_order<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    for dtype in DType::ALL {
        for len in LENGTHS {
            let shard = upload::<C>(device, dtype, &part(world.rank(), len))?;
            let got = world.all_gather(shard)?.wait()?;
            let want: Vec<f64> = (0..world.size()).flat_map(|rank| part(rank, len)).collect();
            holds::<C>("all_gather", device, &got, dtype, &want)?;
        }
    }
    Ok(())
}

/// A promise; see its name.
pub fn all_to_all_exchanges_chunks<C: Communicator>(device: &C::Device, world: &C) -> Result<()> {
    let size = world.size();
    for dtype in DType::ALL {
        for len in LENGTHS {
            let chunks = upload::<C>(device, dtype, &part(world.rank(), size * len))?;
            let got = world.all_to_all(chunks)?.wait()?;
            let own = len * world.rank()..len * (world.rank() + 1);
            let want: Vec<f64> =
                (0..size).flat_map(|rank| part(rank, size * len)[own.clone()].to_vec()).collect();
            holds::<C>("all_to_all", device, &got, dtype, &want)?;
        }
    }
    Ok(())
}

/// A promise; see its name.
pub fn all_reduce_combines_all_ranks<C: Communicator>(device: &C::Device, world: &C) -> Result<()> {
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
        for dtype in NUMBERS {
            for len in LENGTHS {
                let buffer = upload::<C>(device, dtype, &part(world.rank(), len))?;
                let got = world.all_reduce(buffer, op)?.wait()?;
                let parts: Vec<_> = (0..world.size()).map(|rank| part(rank, len)).collect();
                holds::<C>(&format!("{op:?}"), device, &got, dtype, &combine(op, &parts))?;
            }
        }
    }
    Ok(())
}

/// A promise; see its name.
pub fn all_reduce_lets_nan_through<C: Communicator>(device: &C::Device, world: &C) -> Result<()> {
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
        for dtype in DType::FLOATS {
            for bad in 0..world.size() {
                let own = if world.rank() == bad { f64::NAN } else { 1.0 };
                let buffer = upload::<C>(device, dtype, &[2.0, own, 3.0])?;
                let got = device.download(&world.all_reduce(buffer, op)?.wait()?)?.to_f64();
                assert!(got[1].is_nan(), "{op:?} of {dtype}: NaN of rank {bad} became {}", got[1]);
                assert!(!got[0].is_nan() && !got[2].is_nan(), "{op:?} of {dtype}: {got:?}");
            }
        }
    }
    Ok(())
}

/// A promise; see its name.
///
/// A large value and ones whose sum with it needs the bit that the 16-bit type drops: added one by
/// one in the type itself they would all vanish.
pub fn sums_of_16_bit_floats_are_formed_in_f32<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    for (dtype, large) in [(DType::BF16, 256.0), (DType::F16, 2048.0)] {
        let own = if world.rank() == 0 { large } else { 1.0 };
        let want = HostVec::from_f64(dtype, &[large + (world.size() - 1) as f64]).to_f64()[0];
        let buffer = upload::<C>(device, dtype, &[own])?;
        let got = world.all_reduce(buffer, ReduceOp::Sum)?.wait()?;
        holds::<C>("all_reduce", device, &got, dtype, &[want])?;
        let buffer = upload::<C>(device, dtype, &vec![own; world.size()])?;
        let got = world.reduce_scatter(buffer, ReduceOp::Sum)?.wait()?;
        holds::<C>("reduce_scatter", device, &got, dtype, &[want])?;
    }
    Ok(())
}

/// A promise; see its name.
pub fn a_sum_has_the_same_bits_on_every_rank_and_in_every_run<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    // Thirds of several sizes: every order of addition rounds in another way.
    let own: Vec<f32> = (0..999)
        .map(|i| (1 + i + 7 * world.rank()) as f32 / 3.0 * 4f32.powi(i as i32 % 5))
        .collect();
    let mut first: Option<HostVec> = None;
    for run in 0..3 {
        let buffer = device.upload(HostSlice::F32(&own))?;
        let sum = world.all_reduce(buffer, ReduceOp::Sum)?.wait()?;
        let bits = device.download(&sum)?;
        let everywhere = device.download(&world.all_gather(sum)?.wait()?)?;
        for (rank, theirs) in everywhere.as_slice().bytes().chunks(4 * own.len()).enumerate() {
            assert!(theirs == bits.as_slice().bytes(), "rank {rank} got other bits");
        }
        let first = first.get_or_insert_with(|| bits.clone());
        assert!(first.as_slice().bytes() == bits.as_slice().bytes(), "run {run} differs");
    }
    Ok(())
}

/// A promise; see its name.
pub fn reduce_scatter_gives_each_rank_its_chunk<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    let size = world.size();
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
        for dtype in NUMBERS {
            for len in LENGTHS {
                let buffer = upload::<C>(device, dtype, &part(world.rank(), size * len))?;
                let got = world.reduce_scatter(buffer, op)?.wait()?;
                let parts: Vec<_> = (0..size).map(|rank| part(rank, size * len)).collect();
                let own = len * world.rank()..len * (world.rank() + 1);
                let want = &combine(op, &parts)[own];
                holds::<C>(&format!("{op:?}"), device, &got, dtype, want)?;
            }
        }
    }
    Ok(())
}

fn combine(op: ReduceOp, parts: &[Vec<f64>]) -> Vec<f64> {
    let fold = |a: f64, b: f64| match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Max => a.max(b),
        ReduceOp::Min => a.min(b),
    };
    let mut out = parts[0].clone();
    for part in &parts[1..] {
        out.iter_mut().zip(part).for_each(|(out, value)| *out = fold(*out, *value));
    }
    out
}
