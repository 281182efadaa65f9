//! The promises of a communicator: what each collective gives, in a world of any size.
//!
//! Every rank calls the same check at the same time, with its own device and its communicator.
//! Values are small whole numbers, exact in every dtype and every order of addition, except where
//! the order itself is the subject. The ranks' clocks must agree, as they do on one machine.

use crate::{Buffer, BufferOf, Communicator, DType, HostVec, Memory, Result};

mod collectives;
mod refusals;
mod world;

pub use collectives::*;
pub use refusals::*;
pub use world::*;

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

/// What `value` is on every rank, in rank order.
fn gathered<C: Communicator>(device: &C::Device, world: &C, value: f64) -> Result<Vec<f64>> {
    let shard = upload::<C>(device, DType::F64, &[value])?;
    Ok(device.download(&world.all_gather(shard)?.wait()?)?.to_f64())
}
