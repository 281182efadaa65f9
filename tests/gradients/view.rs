//! Views, and the copies they are sometimes forced to make.

use super::differences::check;

#[test]
fn shapes_of_the_same_elements() {
    check("reshape", &[&[2, 6]], |x| x[0].reshape(&[3, 4]));
    check("reshape", &[&[2, 6]], |x| x[0].transpose(0, 1)?.reshape(&[4, 3]));
    check("reshape", &[&[2, 3]], |x| x[0].flatten());
    check("reshape", &[&[2, 3]], |x| x[0].unsqueeze(1)?.unsqueeze(3));
    check("reshape", &[&[2, 1, 3]], |x| x[0].squeeze(1));
    check("reshape", &[&[2, 3]], |x| x[0].transpose(0, 1)?.contiguous());
    check("reshape", &[&[0, 3]], |x| x[0].reshape(&[3, 0, 2]));
    check("reshape", &[&[1]], |x| x[0].reshape(&[]));
}

#[test]
fn dimensions_in_another_order() {
    check("permute", &[&[2, 3]], |x| x[0].transpose(0, 1));
    check("permute", &[&[2, 3, 4]], |x| x[0].permute(&[2, 0, 1]));
    check("permute", &[&[2, 3, 4]], |x| x[0].permute(&[1, 2, 0])?.transpose(0, 2));
    check("permute", &[&[2, 0]], |x| x[0].transpose(0, 1));
}

#[test]
fn parts_of_a_tensor() {
    check("slice", &[&[4, 3]], |x| x[0].slice(0, 1, 2));
    check("slice", &[&[4, 3]], |x| x[0].slice(1, 2, 1));
    check("slice", &[&[4, 3]], |x| x[0].slice(1, 1, 0));
    check("slice", &[&[4, 3]], |x| x[0].slice(0, 4, 0));
    check("slice", &[&[4, 3]], |x| x[0].at(0, 2));
    check("slice", &[&[4, 3, 2]], |x| x[0].at(1, 2)?.slice(1, 1, 1));
}

#[test]
fn overlapping_parts_add_up() {
    check("slice", &[&[5, 2]], |x| x[0].slice(0, 0, 4)?.mul(&x[0].slice(0, 1, 4)?));
    check("slice", &[&[5, 2]], |x| x[0].slice(0, 0, 4)?.mul(&x[0].sum(&[0])?));
}

#[test]
fn repeated_elements() {
    check("broadcast_to", &[&[3]], |x| x[0].broadcast_to(&[2, 3]));
    check("broadcast_to", &[&[2, 1, 3]], |x| x[0].broadcast_to(&[4, 2, 5, 3]));
    check("broadcast_to", &[&[]], |x| x[0].broadcast_to(&[2, 2]));
    check("broadcast_to", &[&[1, 3]], |x| x[0].broadcast_to(&[0, 3]));
    check("broadcast_to", &[&[2, 3]], |x| x[0].broadcast_to(&[2, 3]));
}
