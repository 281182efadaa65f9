//! The contract as tests: one generic function per promise, named as a sentence.
//!
//! A backend keeps the contract if every function returns `Ok`; a broken promise panics with what
//! was computed and what was wanted. Values are held against [`oracle`], plain `f64` loops that
//! know no backend, within the one table of [`tolerance`]. Fused kernels are called twice, as the
//! device's method and as the composition in [`provided`](crate::provided), so an override is
//! compared with what it replaces.
//!
//! # For backends
//! `tests/conformance.rs` is one line for the device and one for a communicator:
//!
//! ```ignore
//! sneppx_contract::device_conformance!("cpu", Cpu::with_threads(2));
//! sneppx_contract::communicator_conformance!(run_in_every_rank);
//! ```
//!
//! The first argument is the backend's name. An opening expression that fails because of the
//! environment (no such hardware, no such library) prints that the promise was skipped; it is a
//! failure if the environment variable `REQUIRE_BACKENDS` lists the name, as in `cpu,cuda`.
//! Programs without the test harness go through [`promises`] and
//! [`communicator_promises`](communicator::communicator_promises).

use crate::{Blame, Device, Result};

pub mod oracle;
pub mod placed;
pub mod refusal;
pub mod tolerance;

pub mod communicator;
pub mod elementwise;
pub mod memory;

/// One promise of the contract.
#[derive(Debug)]
pub struct Promise<D> {
    /// Family and sentence, as in `memory::an_upload_comes_back`.
    pub name: &'static str,
    /// The check.
    ///
    /// # Errors
    /// A call that should have gone through was refused.
    ///
    /// # Panics
    /// A broken promise.
    pub check: fn(&D) -> Result<()>,
}

/// The table of promises of a device, given to the macro `$then`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_device_promise {
    ($then:ident $(, $argument:expr)*) => {
        $crate::$then! {
            [$($argument),*]
            memory {
                an_upload_comes_back
                empty_buffers_are_buffers
                fresh_memory_can_be_read
                a_write_changes_its_own_elements
                ranges_outside_a_buffer_are_refused
                a_write_of_another_dtype_is_refused
                clones_name_the_same_memory
                clones_of_a_device_share_buffers
                work_is_ordered
                live_and_peak_bytes_are_counted
                repeated_steps_allocate_nothing_from_the_system
                too_much_memory_is_an_error
                work_inside_enter_is_the_same
                a_device_has_a_name
                views_beyond_their_buffer_are_refused
            }
            elementwise {
                fill_rounds_to_the_dtype
            }
        }
    };
}

/// The table as functions; see [`promises`].
#[doc(hidden)]
#[macro_export]
macro_rules! promise_list {
    ([] $($family:ident { $($name:ident)* })*) => {
        vec![$($($crate::conformance::Promise {
            name: concat!(stringify!($family), "::", stringify!($name)),
            check: $crate::conformance::$family::$name,
        },)*)*]
    };
}

/// The table as tests; see [`device_conformance!`](crate::device_conformance).
#[doc(hidden)]
#[macro_export]
macro_rules! promise_tests {
    ([$backend:expr, $open:expr] $($family:ident { $($name:ident)* })*) => {
        $(mod $family {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $name() {
                    let check = $crate::conformance::$family::$name;
                    $crate::conformance::keep($backend, $open, check);
                }
            )*
        })*
    };
}

/// Makes one `#[test]` per promise for the device that an expression of type `Result<D>` opens.
#[macro_export]
macro_rules! device_conformance {
    ($backend:expr, $open:expr) => {
        $crate::for_each_device_promise!(promise_tests, $backend, $open);
    };
}

/// Every promise of a device.
pub fn promises<D: Device>() -> Vec<Promise<D>> {
    crate::for_each_device_promise!(promise_list)
}

/// Holds a device to one promise.
///
/// # Panics
/// The promise is broken, or the device cannot be opened though it should be.
pub fn keep<D>(backend: &str, device: Result<D>, check: impl FnOnce(&D) -> Result<()>) {
    let device = match device {
        Ok(device) => device,
        Err(error) if error.blame() == Blame::Environment && !is_required(backend) => {
            eprintln!("skipped: {backend} is not available: {error}");
            return;
        }
        Err(error) => panic!("{backend} cannot be opened: {error}"),
    };
    if let Err(error) = check(&device) {
        panic!("{backend} refused a call that the contract allows: {error}");
    }
}

fn is_required(backend: &str) -> bool {
    let required = std::env::var("REQUIRE_BACKENDS").unwrap_or_default();
    required.split(',').any(|name| name.trim() == backend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    #[should_panic(expected = "absent cannot be opened")]
    fn a_caller_mistake_in_opening_is_no_skip() {
        keep("absent", Err::<(), _>(Error::invalid("threads", 0, "none")), |_| Ok(()));
    }

    #[test]
    fn an_absent_device_is_skipped() {
        let absent = Error::Device { device: "absent".into(), detail: "no library".into() };
        keep("absent", Err::<(), _>(absent), |_| panic!("there is nothing to check"));
    }

    #[test]
    #[should_panic(expected = "refused a call")]
    fn an_error_of_a_check_is_a_failure() {
        keep("trial", Ok(()), |_| Err(Error::Internal("refusal".into())));
    }
}
