//! Ranks, groups of them, and work in flight between them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{gathered, holds, part, upload};
use crate::{Communicator, DType, ReduceOp, Result};

/// A promise; see its name.
pub fn ranks_are_numbered_in_order<C: Communicator>(device: &C::Device, world: &C) -> Result<()> {
    assert!(world.rank() < world.size(), "rank {} of {}", world.rank(), world.size());
    let ranks = gathered(device, world, world.rank() as f64)?;
    assert!(ranks.iter().copied().eq((0..world.size()).map(|rank| rank as f64)), "{ranks:?}");
    let copy = world.clone();
    assert_eq!((copy.rank(), copy.size()), (world.rank(), world.size()));
    Ok(())
}

/// A promise; see its name.
pub fn collectives_in_flight_may_be_waited_for_in_any_order<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    let ranks = || 0..world.size();
    let own = |shift: f64| upload::<C>(device, DType::F32, &[world.rank() as f64 + shift]);
    let sum = world.all_reduce(own(0.0)?, ReduceOp::Sum)?;
    let all = world.all_gather(own(10.0)?)?;
    let largest = world.all_reduce(own(20.0)?, ReduceOp::Max)?;
    let root = world.broadcast(own(30.0)?, world.size() - 1)?;

    let last = (world.size() - 1) as f64;
    holds::<C>("broadcast", device, &root.wait()?, DType::F32, &[last + 30.0])?;
    holds::<C>("max", device, &largest.wait()?, DType::F32, &[last + 20.0])?;
    let want: Vec<f64> = ranks().map(|rank| rank as f64 + 10.0).collect();
    holds::<C>("all_gather", device, &all.wait()?, DType::F32, &want)?;
    holds::<C>("sum", device, &sum.wait()?, DType::F32, &[ranks().sum::<usize>() as f64])
}

/// A promise; see its name.
pub fn work_may_be_waited_for_on_another_thread<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    let work = world.all_gather(upload::<C>(device, DType::I64, &part(world.rank(), 3))?)?;
    let got = std::thread::scope(|scope| {
        scope.spawn(|| work.wait()).join().expect("waiting does not panic")
    })?;
    let want: Vec<f64> = (0..world.size()).flat_map(|rank| part(rank, 3)).collect();
    holds::<C>("all_gather", device, &got, DType::I64, &want)
}

/// A promise; see its name.
pub fn work_that_is_dropped_is_done<C: Communicator>(device: &C::Device, world: &C) -> Result<()> {
    for _ in 0..3 {
        drop(world.all_gather(upload::<C>(device, DType::F32, &part(world.rank(), 5))?)?);
        drop(world.all_reduce(upload::<C>(device, DType::F32, &[9.0])?, ReduceOp::Sum)?);
        ranks_are_numbered_in_order(device, world)?;
    }
    Ok(())
}

/// A promise; see its name.
pub fn a_barrier_waits_for_every_rank<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    let now = || match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(time) => time.as_secs_f64(),
        Err(error) => panic!("the clock stands before 1970: {error}"),
    };
    world.barrier()?;
    std::thread::sleep(Duration::from_millis(20 * world.rank() as u64));
    let came = now();
    world.barrier()?;
    let left = now();
    let last_came = gathered(device, world, came)?.into_iter().fold(f64::MIN, f64::max);
    let first_left = gathered(device, world, left)?.into_iter().fold(f64::MAX, f64::min);
    assert!(first_left >= last_came, "one left {} s early", last_came - first_left);
    Ok(())
}

/// A promise; see its name.
pub fn a_split_by_color_makes_worlds_of_their_own<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    let color = world.rank() % 2;
    let group = world.split(color, 0)?;
    let members: Vec<f64> = (color..world.size()).step_by(2).map(|rank| rank as f64).collect();
    assert_eq!((group.rank(), group.size()), (world.rank() / 2, members.len()));
    assert_eq!(gathered(device, &group, world.rank() as f64)?, members);
    let own = upload::<C>(device, DType::F64, &[world.rank() as f64])?;
    let sum = group.all_reduce(own, ReduceOp::Sum)?.wait()?;
    holds::<C>("sum", device, &sum, DType::F64, &[members.iter().sum()])?;
    assert!(
        group.broadcast(sum, group.size()).is_err(),
        "ranks of the group count, not the world's"
    );
    // The old world goes on beside the new ones.
    ranks_are_numbered_in_order(device, world)
}

/// A promise; see its name.
pub fn a_split_orders_ranks_by_key<C: Communicator>(device: &C::Device, world: &C) -> Result<()> {
    let reversed = world.split(7, world.size() - world.rank())?;
    assert_eq!(reversed.rank(), world.size() - 1 - world.rank());
    let want: Vec<f64> = (0..world.size()).rev().map(|rank| rank as f64).collect();
    assert_eq!(gathered(device, &reversed, world.rank() as f64)?, want);
    let equal_keys = world.split(7, 3)?;
    assert_eq!((equal_keys.rank(), equal_keys.size()), (world.rank(), world.size()));
    Ok(())
}

/// A promise; see its name.
pub fn a_split_may_leave_each_rank_alone<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    let alone = world.split(1000 + world.rank(), 5)?;
    assert_eq!((alone.rank(), alone.size()), (0, 1));
    let own = part(world.rank(), 4);
    let buffer = upload::<C>(device, DType::F32, &own)?;
    let sum = alone.all_reduce(buffer, ReduceOp::Sum)?.wait()?;
    holds::<C>("sum", device, &sum, DType::F32, &own)?;
    alone.barrier()?;
    ranks_are_numbered_in_order(device, world)
}
