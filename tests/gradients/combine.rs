//! Several tensors joined into one.

use super::differences::{T, check};

#[test]
fn tensors_one_after_another() {
    check("concatenate", &[&[2, 3], &[1, 3], &[3, 3]], |x| {
        T::concatenate(&[&x[0], &x[1], &x[2]], 0)
    });
    check("concatenate", &[&[2, 1, 2], &[2, 3, 2]], |x| T::concatenate(&[&x[0], &x[1]], 1));
    check("concatenate", &[&[2, 3], &[2, 0]], |x| T::concatenate(&[&x[0], &x[1]], 1));
    check("concatenate", &[&[2, 3]], |x| T::concatenate(&[&x[0], &x[0]], 1));
}

#[test]
fn tensors_along_a_new_dimension() {
    for dim in 0..3 {
        check("concatenate", &[&[2, 3], &[2, 3]], |x| T::stack(&[&x[0], &x[1]], dim));
    }
}
