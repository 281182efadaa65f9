//! Attention in its forms, and rotary positions.

use sneppx::autograd::rules::AttentionOptions;
use sneppx::contract::Visibility;
use sneppx::{DType, Result};

use super::differences::{T, check, device};

const CAUSAL: AttentionOptions = AttentionOptions { scale: None, visibility: Visibility::Causal };
const ALL: AttentionOptions = AttentionOptions { scale: Some(0.4), visibility: Visibility::All };

#[test]
fn separate_queries_keys_and_values() {
    for options in [CAUSAL, ALL] {
        // Equal heads, grouped heads, one head of keys for all, and values of another size.
        for [heads, groups, size] in [[2, 2, 2], [4, 2, 2], [3, 1, 2], [2, 2, 3]] {
            let shapes = [&[2, heads, 3, 2][..], &[2, groups, 3, 2], &[2, groups, 3, size]];
            check("attention", &shapes, |x| x[0].attention(&x[1], &x[2], None, options));
        }
        // Fewer queries than keys: the causal mask is aligned at the end.
        let shapes = [&[1, 2, 2, 3][..], &[1, 1, 5, 3], &[1, 1, 5, 3]];
        check("attention", &shapes, |x| x[0].attention(&x[1], &x[2], None, options));
    }
}

#[test]
fn one_tensor_as_queries_keys_and_values() {
    check("attention", &[&[1, 2, 3, 2]], |x| x[0].attention(&x[0], &x[0], None, CAUSAL));
}

#[test]
fn a_mask_beside_the_visibility() {
    let mask = [1u8, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1];
    for options in [CAUSAL, ALL] {
        for (shape, values) in [([1, 1, 3, 4], &mask[..]), ([2, 1, 1, 4], &mask[4..12])] {
            let shapes = [&[2, 2, 3, 2][..], &[2, 1, 4, 2], &[2, 1, 4, 3]];
            check("attention", &shapes, |x| {
                let mask = T::from_slice(x[0].device(), values, &shape)?;
                x[0].attention(&x[1], &x[2], Some(&mask), options)
            });
        }
    }
}

#[test]
fn heads_packed_side_by_side() {
    for options in [CAUSAL, ALL] {
        check("packed_attention", &[&[2, 3, 12]], |x| x[0].packed_attention(2, 2, options));
        check("packed_attention", &[&[1, 3, 16]], |x| x[0].packed_attention(4, 2, options));
        check("packed_attention", &[&[1, 4, 10]], |x| x[0].packed_attention(3, 1, options));
    }
}

#[test]
fn packed_heads_equal_separate_ones() -> Result<()> {
    let device = device();
    let values: Vec<f64> = (0..2 * 5 * 24).map(|i| (f64::from(i) * 0.7).sin()).collect();
    for [heads, groups] in [[4, 4], [4, 2], [6, 1]] {
        let size = 24 / (heads + 2 * groups);
        let width = size * (heads + 2 * groups);
        let x = T::from_slice(&device, &values[..2 * 5 * width], &[2, 5, width])?;
        let packed = x.packed_attention(heads, groups, CAUSAL)?;
        let split = x.reshape(&[2, 5, width / size, size])?.transpose(1, 2)?;
        let part = |start, count| split.slice(1, start, count);
        let (q, k, v) = (part(0, heads)?, part(heads, groups)?, part(heads + groups, groups)?);
        let separate = q.attention(&k, &v, None, CAUSAL)?.transpose(1, 2)?;
        let separate = separate.reshape(&[2, 5, heads * size])?;
        assert_eq!(packed.to_vec::<f64>()?, separate.to_vec::<f64>()?, "{heads} over {groups}");
    }
    Ok(())
}

#[test]
fn sizes_that_disagree_are_named() -> Result<()> {
    let device = device();
    let x = |shape: &[usize]| T::zeros(&device, DType::F64, shape);
    let q = x(&[1, 3, 4, 2])?;
    let refused = [
        q.attention(&x(&[1, 2, 4, 2])?, &x(&[1, 2, 4, 2])?, None, CAUSAL),
        q.attention(&x(&[1, 3, 4, 3])?, &x(&[1, 3, 4, 3])?, None, CAUSAL),
        q.attention(&x(&[4, 2])?, &x(&[4, 2])?, None, CAUSAL),
        x(&[1, 4, 10])?.packed_attention(2, 2, CAUSAL),
        x(&[1, 4, 12])?.packed_attention(3, 2, CAUSAL),
        x(&[4, 12])?.packed_attention(2, 2, CAUSAL),
    ];
    for (number, result) in refused.into_iter().enumerate() {
        let error = result.err().unwrap_or_else(|| panic!("case {number} was accepted"));
        assert!(error.to_string().contains("attention"), "case {number}: {error}");
    }
    Ok(())
}

#[test]
fn rotary_positions() {
    for shape in [&[2, 3, 4][..], &[1, 2, 3, 6], &[3, 2], &[0, 3, 4]] {
        let (positions, half) = (shape[shape.len() - 2], shape[shape.len() - 1] / 2);
        check("rotary", &[shape], |x| {
            let angles: Vec<f64> = (0..positions * half).map(|i| 0.3 * i as f64 + 0.1).collect();
            let angles = T::from_slice(x[0].device(), &angles, &[positions, half])?;
            x[0].rotary(&angles.cos()?, &angles.sin()?)
        });
    }
}

const Q: [f64; 6] = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
const K: [f64; 6] = [1.0, 0.0, 0.0, 1.0, 1.0, -1.0];
const V: [f64; 6] = [1.0, 10.0, 2.0, 20.0, 4.0, 40.0];

fn head(values: &[f64; 6]) -> Result<T> {
    T::from_slice(&device(), values, &[1, 1, 3, 2])?.requires_grad()
}

fn near(got: &T, want: &[f64]) -> Result<()> {
    let got = got.to_vec::<f64>()?;
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= 1e-9 * (1.0 + w.abs()), "{got:?}, want {want:?}");
    }
    Ok(())
}

#[test]
fn attn_01_a_fully_masked_row_gives_zeros_and_no_nan() -> Result<()> {
    let (q, k, v) = (head(&Q)?, head(&K)?, head(&V)?);
    let mask = T::from_slice(q.device(), &[1u8, 1, 0, 0, 0, 0, 1, 1, 1], &[1, 1, 3, 3])?;
    let options = AttentionOptions { scale: None, visibility: Visibility::All };
    let out = q.attention(&k, &v, Some(&mask), options)?;
    near(&out, &[1.330_238_450_7, 13.302_384_506_7, 0.0, 0.0, 1.994_439_536_6, 19.944_395_366_0])?;
    out.sum_all()?.backward()?;
    let dq = q.grad().unwrap().to_vec::<f64>()?;
    assert_eq!(dq[2..4], [0.0, 0.0]);
    let rows = [1.070_873_642_0, 0.731_350_543_4, 0.197_775_814_6];
    near(&v.grad().unwrap(), &rows.map(|row| [row, row]).concat())?;
    let dk = k.grad().unwrap().to_vec::<f64>()?;
    assert!(dq.iter().chain(&dk).all(|value| value.is_finite()), "{dq:?} {dk:?}");
    Ok(())
}

#[test]
fn attn_02_the_causal_mask_is_not_off_by_one() -> Result<()> {
    let out = head(&Q)?.attention(&head(&K)?, &head(&V)?, None, CAUSAL)?;
    assert_eq!(out.to_vec::<f64>()?[..2], [1.0, 10.0]);
    near(&out, &[1.0, 10.0, 1.669_761_549_3, 16.697_615_493_3, 1.994_439_536_6, 19.944_395_366_0])
}

#[test]
fn attn_04_a_head_of_odd_size_works_without_rotary_positions() -> Result<()> {
    let device = device();
    let q = T::from_slice(&device, &[1.0, 2.0, 3.0, 0.0, 1.0, 0.0], &[1, 1, 2, 3])?;
    let k = T::from_slice(&device, &[1.0, 0.0, 1.0, 0.0, 2.0, 0.0], &[1, 1, 2, 3])?;
    let v = T::from_slice(&device, &[1.0, 5.0], &[1, 1, 2, 1])?;
    near(&q.attention(&k, &v, None, CAUSAL)?, &[1.0, 4.041_473_767_4])
}
