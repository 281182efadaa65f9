//! What a refused call must look like.

use crate::{Error, Result};

/// The call was refused for its shapes.
///
/// # Panics
/// It was not, or for another reason.
#[track_caller]
pub fn refused_shape<T>(what: &str, result: Result<T>) {
    match result {
        Err(Error::Shape { detail, .. }) => assert!(!detail.is_empty(), "{what}: empty message"),
        Err(other) => panic!("{what}: expected a shape error, got: {other}"),
        Ok(_) => panic!("{what}: expected a shape error, the call went through"),
    }
}

/// The call was refused for its dtypes.
///
/// # Panics
/// It was not, or for another reason.
#[track_caller]
pub fn refused_dtype<T>(what: &str, result: Result<T>) {
    match result {
        Err(Error::DType { expected, .. }) => {
            assert!(!expected.is_empty(), "{what}: the message names no dtype");
        }
        Err(other) => panic!("{what}: expected a dtype error, got: {other}"),
        Ok(_) => panic!("{what}: expected a dtype error, the call went through"),
    }
}

/// The call was refused because of the index `value` at `at`, outside of `0..limit`. A deferred
/// error of a queue comes out in `synchronize`, so the caller chains it.
///
/// # Panics
/// It was not, or for another reason, or with other numbers.
#[track_caller]
pub fn refused_index<T>(what: &str, result: Result<T>, value: i64, at: usize, limit: usize) {
    match result {
        Err(Error::IndexOutOfRange { index, position, bound, .. }) => {
            assert_eq!((index, position, bound), (value, at, limit), "{what}: wrong numbers");
        }
        Err(other) => panic!("{what}: expected index {value} to be refused, got: {other}"),
        Ok(_) => panic!("{what}: index {value} is outside 0..{limit}, and the call went through"),
    }
}

/// The call was refused because of an argument that is not allowed.
///
/// # Panics
/// It was not, or for another reason.
#[track_caller]
pub fn refused_argument<T>(what: &str, result: Result<T>) {
    match result {
        Err(Error::InvalidArgument { reason, .. }) => {
            assert!(!reason.is_empty(), "{what}: the message gives no reason");
        }
        Err(other) => panic!("{what}: expected a refused argument, got: {other}"),
        Ok(_) => panic!("{what}: expected a refused argument, the call went through"),
    }
}
