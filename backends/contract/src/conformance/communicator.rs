//! The promises of a communicator: what each collective gives, in a world of any size.
//!
//! Every rank calls the same check at the same time, with its own device and its communicator.
//! Values are small whole numbers, exact in every dtype and every order of addition, except where
//! the order itself is the subject. The ranks' clocks must agree, as they do on one machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{
    Buffer, BufferOf, Communicator, DType, Error, HostSlice, HostVec, Memory, ReduceOp, Result,
};

/// One promise of a communicator.
#[derive(Debug)]
pub struct CommunicatorPromise<C: Communicator> {
    /// The sentence.
    pub name: &'static str,
    /// The check, called by every rank at once.
    ///
    /// # Errors
    /// A call that should have gone through was refused.
    ///
    /// # Panics
    /// A broken promise.
    pub check: fn(&C::Device, &C) -> Result<()>,
}

/// The table of promises of a communicator, given to the macro `$then`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_communicator_promise {
    ($then:ident $(, $argument:expr)*) => {
        $crate::$then! {
            [$($argument),*]
            ranks_are_numbered_in_order
            a_broadcast_gives_every_rank_the_values_of_the_root
            a_root_that_is_no_rank_is_refused
            all_gather_puts_shards_in_rank_order
            all_to_all_exchanges_chunks
            all_reduce_combines_all_ranks
            all_reduce_lets_nan_through
            sums_of_16_bit_floats_are_formed_in_f32
            a_sum_has_the_same_bits_on_every_rank_and_in_every_run
            reduce_scatter_gives_each_rank_its_chunk
            lengths_that_do_not_divide_are_refused
            bytes_are_no_numbers_to_reduce
            empty_buffers_travel_too
            collectives_in_flight_may_be_waited_for_in_any_order
            work_may_be_waited_for_on_another_thread
            work_that_is_dropped_is_done
            a_refused_call_leaves_the_world_usable
            a_barrier_waits_for_every_rank
            a_split_by_color_makes_worlds_of_their_own
            a_split_orders_ranks_by_key
            a_split_may_leave_each_rank_alone
        }
    };
}

/// The table as functions; see [`communicator_promises`].
#[doc(hidden)]
#[macro_export]
macro_rules! communicator_promise_list {
    ([] $($name:ident)*) => {
        vec![$($crate::conformance::communicator::CommunicatorPromise {
            name: stringify!($name),
            check: $crate::conformance::communicator::$name,
        },)*]
    };
}

/// The table as tests; see [`communicator_conformance!`](crate::communicator_conformance).
#[doc(hidden)]
#[macro_export]
macro_rules! communicator_promise_tests {
    ([$in_every_rank:expr] $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $in_every_rank($crate::conformance::communicator::$name);
            }
        )*
    };
}

/// Makes one `#[test]` per promise of a communicator.
///
/// The argument is a function that starts the ranks, calls what it is given in each of them, as in
/// `fn in_every_rank(check: impl Fn(&Cpu, &Solo<Cpu>) -> Result<()> + Sync)`, and panics if one
/// of the checks fails.
#[macro_export]
macro_rules! communicator_conformance {
    ($in_every_rank:expr) => {
        $crate::for_each_communicator_promise!(communicator_promise_tests, $in_every_rank);
    };
}

/// Every promise of a communicator, for programs without the test harness.
pub fn communicator_promises<C: Communicator>() -> Vec<CommunicatorPromise<C>> {
    crate::for_each_communicator_promise!(communicator_promise_list)
}

/// Lengths of a rank's part, odd and even, below and above a cache line.
const LENGTHS: [usize; 4] = [1, 2, 7, 1000];

/// The dtypes that ranks combine.
const NUMBERS: [DType; 6] =
    [DType::F32, DType::F64, DType::BF16, DType::F16, DType::U32, DType::I64];

/// Small whole numbers that differ between ranks and places.
fn part(rank: usize, len: usize) -> Vec<f64> {
    (0..len).map(|i| ((3 * rank + 5 * i) % 11) as f64 + rank as f64).collect()
}

fn upload<C: Communicator>(
    device: &C::Device,
    dtype: DType,
    values: &[f64],
) -> Result<BufferOf<C>> {
    device.upload(HostVec::from_f64(dtype, values).as_slice())
}

#[track_caller]
fn holds<C: Communicator>(
    what: &str,
    device: &C::Device,
    buffer: &BufferOf<C>,
    dtype: DType,
    want: &[f64],
) -> Result<()> {
    assert_eq!(buffer.dtype(), dtype, "{what}: the dtype changed");
    assert_eq!(device.download(buffer)?.to_f64(), want, "{what} of {dtype}");
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

/// What `value` is on every rank, in rank order.
fn gathered<C: Communicator>(device: &C::Device, world: &C, value: f64) -> Result<Vec<f64>> {
    let shard = upload::<C>(device, DType::F64, &[value])?;
    Ok(device.download(&world.all_gather(shard)?.wait()?)?.to_f64())
}

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
pub fn a_refused_call_leaves_the_world_usable<C: Communicator>(
    device: &C::Device,
    world: &C,
) -> Result<()> {
    a_root_that_is_no_rank_is_refused(device, world)?;
    bytes_are_no_numbers_to_reduce(device, world)?;
    ranks_are_numbered_in_order(device, world)?;
    world.barrier()
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
