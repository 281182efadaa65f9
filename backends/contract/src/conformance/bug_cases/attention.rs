//! Attention: rows that see nothing, the causal border, odd head sizes.

use super::{EXACT, Tensor, all_finite, near};
use crate::conformance::composed::Composed;
use crate::{Attention, DType, Device, Result, Visibility};

/// The result and the gradients of its sum, for one head.
struct Attended {
    out: Vec<f64>,
    dq: Vec<f64>,
    dk: Vec<f64>,
    dv: Vec<f64>,
}

fn attend<D: Device>(
    device: &D,
    dtype: DType,
    visibility: Visibility,
    [q, k, v]: [(&[f64], usize); 3],
    mask: Option<&[f64]>,
) -> Result<Attended> {
    let spec = Attention { scale: 1.0 / (q.1 as f64).sqrt(), visibility };
    let place = |(values, size): (&[f64], usize)| {
        Tensor::new(device, dtype, &[1, 1, values.len() / size, size], values)
    };
    let (queries, keys) = (q.0.len() / q.1, k.0.len() / k.1);
    let mask = match mask {
        Some(mask) => Some(Tensor::new(device, DType::U8, &[1, 1, queries, keys], mask)?),
        None => None,
    };
    let mask = mask.as_ref().map(Tensor::view);
    let (q, k, v) = (place(q)?, place(k)?, place(v)?);
    let out = Tensor::output(device, dtype, &[1, 1, queries, v.layout.shape()[3]])?;
    let lse = Tensor::output(device, dtype.accumulator(), &[1, 1, queries])?;
    device.attention(spec, q.view(), k.view(), v.view(), mask, out.view(), lse.view())?;
    let like = |of: &Tensor<D>| Tensor::output(device, dtype, of.layout.shape());
    let (dout, dq, dk, dv) = (like(&out)?, like(&q)?, like(&k)?, like(&v)?);
    device.fill(1.0, dout.view())?;
    device.attention_backward(
        spec,
        q.view(),
        k.view(),
        v.view(),
        mask,
        out.view(),
        lse.view(),
        dout.view(),
        dq.view(),
        dk.view(),
        dv.view(),
    )?;
    Ok(Attended { out: out.values()?, dq: dq.values()?, dk: dk.values()?, dv: dv.values()? })
}

const QUERIES: (&[f64], usize) = (&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], 2);
const KEYS: (&[f64], usize) = (&[1.0, 0.0, 0.0, 1.0, 1.0, -1.0], 2);
const VALUES: (&[f64], usize) = (&[1.0, 10.0, 2.0, 20.0, 4.0, 40.0], 2);

/// A promise; see its name.
pub fn attn_01_a_row_that_sees_nothing_gives_zero_and_harms_nobody<D: Device>(
    device: &D,
) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let mask = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
        for (dtype, tolerance) in EXACT {
            let operands = [QUERIES, KEYS, VALUES];
            let got = attend(device, dtype, Visibility::All, operands, Some(&mask))?;
            let want = [1.3302384507, 13.3023845067, 0.0, 0.0, 1.9944395366, 19.9443953660];
            near("result", &got.out, &want, tolerance);
            assert_eq!(got.out[2..4], [0.0; 2]);
            assert_eq!(got.dq[2..4], [0.0; 2]);
            let rows = [1.0708736420, 0.7313505434, 0.1977758146];
            near("dv", &got.dv, &rows.map(|sum| [sum, sum]).concat(), tolerance);
            all_finite("dq", &got.dq);
            all_finite("dk", &got.dk);
        }
        for dtype in DType::FLOATS {
            let operands = [QUERIES, KEYS, VALUES];
            let got = attend(device, dtype, Visibility::All, operands, Some(&[0.0; 9]))?;
            for values in [got.out, got.dq, got.dk, got.dv] {
                assert_eq!(values, [0.0; 6], "{dtype}: nothing is seen at all");
            }
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn attn_02_a_position_sees_itself_and_nothing_later<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        for (dtype, tolerance) in EXACT {
            let operands = [QUERIES, KEYS, VALUES];
            let got = attend(device, dtype, Visibility::Causal, operands, None)?;
            let want = [1.0, 10.0, 1.6697615493, 16.6976154933, 1.9944395366, 19.9443953660];
            near("result", &got.out, &want, tolerance);
            assert_eq!(got.out[..2], [1.0, 10.0], "one key: its value, exactly");
            // The same three queries one by one, each appended to a cache of the keys so far.
            for position in 0..3 {
                let query = (&QUERIES.0[2 * position..][..2], 2);
                let seen = 2 * (position + 1);
                let (keys, values) = ((&KEYS.0[..seen], 2), (&VALUES.0[..seen], 2));
                let got = attend(device, dtype, Visibility::Causal, [query, keys, values], None)?;
                near("appended", &got.out, &want[2 * position..][..2], tolerance);
            }
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn attn_04_an_odd_head_size_works<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let q: (&[f64], usize) = (&[1.0, 2.0, 3.0, 0.0, 1.0, 0.0], 3);
        let k: (&[f64], usize) = (&[1.0, 0.0, 1.0, 0.0, 2.0, 0.0], 3);
        let v: (&[f64], usize) = (&[1.0, 5.0], 1);
        for (dtype, tolerance) in EXACT {
            let got = attend(device, dtype, Visibility::Causal, [q, k, v], None)?;
            near("result", &got.out, &[1.0, 4.0414737674], tolerance);
            assert_eq!(got.out[0], 1.0);
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}
