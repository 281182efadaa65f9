//! The contract as tests: one generic function per promise, named as a sentence.
//!
//! A backend keeps the contract if every function returns `Ok`; a broken promise panics with what
//! was computed and what was wanted. Values are held against [`oracle`], plain `f64` loops that
//! know no backend, within the one table of [`tolerance`]. Fused kernels are checked twice, as the
//! device's methods and as the compositions of its [`composed::Composed`] twin.
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

/// What a function gives on a device and on its composed twin, as an array.
macro_rules! on_both {
    ($device:expr, $run:ident($($argument:expr),* $(,)?)) => {
        [
            $run($device, $($argument),*)?,
            $run(&$crate::conformance::composed::Composed::of($device), $($argument),*)?,
        ]
    };
}

pub mod composed;
pub mod oracle;
pub mod placed;
pub mod refusal;
pub mod tolerance;

pub mod activation;
pub mod attention;
pub mod bug_cases;
pub mod communicator;
pub mod elementwise;
pub mod functions;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod memory;
pub mod norm;
pub mod optim;
pub mod random;
pub mod reduce;
pub mod rotary;
pub mod softmax;
pub mod sums;

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
                fill_keeps_special_values
                an_output_that_repeats_elements_is_refused
                copy_moves_values_between_any_layouts
                copy_changes_no_bit
                copy_repeats_along_strides_of_zero
                copy_within_a_buffer_needs_views_apart
                operands_that_disagree_are_refused
                cast_converts_between_all_dtypes
                cast_rounds_to_nearest_even
                cast_to_integers_truncates_and_saturates
                scaled_add_is_a_scaled_sum
                scaled_add_without_old_values_does_not_read_them
                scaled_add_takes_repeated_and_equal_views
                moved_and_mixed_values_have_the_same_bits_in_every_run
            }
            functions {
                unary_functions_have_their_values
                unary_functions_keep_their_limits
                integers_are_negated_squared_and_made_positive
                unary_functions_have_their_derivatives
                the_derivative_at_a_corner_is_zero
                binary_functions_have_their_values
                binary_functions_broadcast
                integer_arithmetic_wraps
                extremes_with_nan_are_nan
                comparisons_give_zero_or_one
                large_integers_are_told_apart
                selection_takes_one_or_the_other
                what_is_not_selected_does_not_matter
                functions_of_operands_that_disagree_are_refused
                functions_give_the_same_bits_in_every_run
            }
            reduce {
                sums_run_over_any_dimensions
                extremes_run_over_any_dimensions
                sums_of_integers_are_exact
                an_extreme_of_nan_is_nan
                extremes_of_infinities_are_infinite
                long_sums_keep_their_digits
                sums_can_be_added_to_old_values
                the_sum_of_nothing_is_zero
                repeated_elements_are_summed_each_time
                the_bits_of_a_sum_depend_on_shapes_alone
                shapes_that_do_not_reduce_are_refused
            }
            matmul {
                products_have_their_values
                products_take_any_layout
                products_are_scaled_and_added
                a_product_over_nothing_is_zero
                one_matrix_serves_a_batch
                products_of_16_bit_floats_are_summed_in_f32
                nan_stays_in_its_row
                products_have_the_same_bits_in_every_run
                matrices_that_do_not_fit_are_refused
                products_of_unfit_operands_are_refused
            }
            index {
                index_select_picks_rows
                no_indices_are_fine
                an_index_outside_the_table_is_an_error
                an_index_error_says_where
                index_add_adds_rows
                index_add_adds_in_ascending_order
                index_add_sums_16_bit_floats_in_f32
                index_add_gives_the_same_bits_in_every_run
                unfit_tables_and_indices_are_refused
            }
            random {
                random_numbers_are_those_of_the_stream
                random_numbers_do_not_depend_on_the_cut
                random_integers_are_refused
                dropout_keeps_what_the_stream_says
                dropped_values_do_not_matter
                unfit_dropout_is_refused
            }
            softmax {
                softmax_has_its_values
                softmax_rows_sum_to_one
                softmax_gives_hidden_elements_nothing
                softmax_has_its_derivative
                unfit_softmax_is_refused
                softmax_gives_the_same_bits_in_every_run
            }
            norm {
                normalisations_have_their_values
                normalisations_work_in_place
                normalisations_have_their_derivatives
                unfit_normalisations_are_refused
                normalisations_give_the_same_bits_in_every_run
            }
            activation {
                activations_with_a_bias_have_their_values
                activations_with_a_bias_have_their_derivatives
                gated_activations_have_their_values_and_derivatives
                unfit_activations_are_refused
                activations_give_the_same_bits_in_every_run
            }
            rotary {
                rotations_have_their_values
                rotating_back_undoes_a_rotation
                unfit_rotations_are_refused
            }
            loss {
                cross_entropy_has_its_values_and_derivative
                one_gradient_serves_every_loss
                rows_of_logits_are_apart
                a_target_outside_the_classes_is_an_error
                unfit_losses_are_refused
                losses_have_the_same_bits_in_every_run
            }
            attention {
                attention_has_its_values_and_derivative
                causal_attention_is_aligned_at_the_end
                large_scores_and_hidden_keys_do_no_harm
                operands_may_share_a_buffer
                unfit_attention_is_refused
                attention_gives_the_same_bits_in_every_run
            }
            optim {
                adamw_steps_have_their_values
                late_adamw_steps_are_finite
                sgd_steps_have_their_values
                updates_do_not_depend_on_the_cut
                unfit_updates_are_refused
                updates_give_the_same_bits_in_every_run
            }
            sums {
                squares_are_summed_in_blocks
                sums_of_squares_do_not_depend_on_the_cut
                one_value_that_is_not_finite_is_found
                values_around_a_view_may_be_nan
                tree_sums_have_their_values
                tree_sums_add_along_the_tree
                unfit_sums_are_refused
                sums_give_the_same_bits_in_every_run
            }
            bug_cases {
                ce_01_ignored_rows_have_neither_loss_nor_gradient
                ce_02_a_batch_without_labels_has_no_gradient
                ce_03_a_label_outside_the_classes_is_an_error
                ce_04_smoothing_leaves_ignored_rows_out
                ce_05_huge_logits_keep_their_loss
                ce_07_sums_over_a_big_vocabulary_are_not_formed_in_16_bits
                attn_01_a_row_that_sees_nothing_gives_zero_and_harms_nobody
                attn_02_a_position_sees_itself_and_nothing_later
                attn_04_an_odd_head_size_works
                num_02_the_variance_of_large_values_is_not_negative
                num_03_each_row_of_a_softmax_is_shifted_by_its_own_maximum
                adam_01_decay_is_decoupled_from_the_gradient
                adam_02_epsilon_is_added_to_the_root_of_the_corrected_moment
                adam_06_a_zero_gradient_leaves_f16_parameters_alone
                clip_06_squares_of_f16_gradients_do_not_overflow
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
