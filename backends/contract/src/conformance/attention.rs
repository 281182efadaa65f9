//! Scaled dot-product attention and its derivative.

use super::oracle::fused::AttentionValues;
use super::placed::{Lie, Placed, assert_same_bits, draw};
use super::refusal::{refused_dtype, refused_shape};
use super::tolerance::assert_close;
use crate::check::AttentionDims;
use crate::{Attention, DType, Device, HostVec, Layout, Result, View, Visibility};

/// `[B, H, G, T, S, D, E]`: one key, more keys than queries and fewer, odd sizes, heads that share
/// keys, sizes beyond one block, and nothing at all.
const SIZES: [[usize; 7]; 11] = [
    [1, 1, 1, 1, 1, 1, 1],
    [2, 2, 2, 3, 3, 4, 4],
    [1, 4, 2, 5, 5, 3, 2],
    [2, 3, 1, 7, 7, 8, 8],
    [1, 2, 1, 2, 9, 4, 5],
    [1, 1, 1, 1, 70, 16, 16],
    [1, 2, 2, 4, 2, 4, 4],
    [1, 2, 1, 67, 67, 16, 16],
    [1, 1, 1, 130, 131, 8, 8],
    [0, 2, 1, 3, 3, 4, 4],
    [1, 2, 1, 0, 3, 4, 4],
];

/// The inputs of one attention.
struct Case {
    dtype: DType,
    spec: Attention,
    lie: usize,
    values: AttentionValues,
    dout: Vec<f64>,
}

impl Case {
    fn new(
        dtype: DType,
        size: [usize; 7],
        visibility: Visibility,
        masked: bool,
        lie: usize,
    ) -> Case {
        let [batch, heads, kv_heads, queries, keys, head_size, value_size] = size;
        let dims = AttentionDims { batch, heads, kv_heads, queries, keys, head_size, value_size };
        let numbers = |seed, count: usize| draw(dtype, seed + lie as u64, count, -1.0, 1.0);
        let scores = batch * heads * queries * keys;
        // Some rows are hidden altogether.
        let seen = |i: usize| u8::from(i / keys % 5 != 3 && !(i * 7).is_multiple_of(3));
        let values = AttentionValues {
            dims,
            q: numbers(0, batch * heads * queries * head_size),
            k: numbers(100, batch * kv_heads * keys * head_size),
            v: numbers(200, batch * kv_heads * keys * value_size),
            mask: masked.then(|| (0..scores).map(|i| f64::from(seen(i))).collect()),
        };
        let scale = 1.0 / (head_size as f64).sqrt();
        let dout = numbers(300, batch * heads * queries * value_size);
        Case { dtype, spec: Attention { scale, visibility }, lie, values, dout }
    }

    fn all(dtype: DType) -> Vec<Case> {
        let mut cases = vec![];
        for size in SIZES {
            for visibility in [Visibility::All, Visibility::Causal] {
                for masked in [false, true] {
                    cases.push(Case::new(dtype, size, visibility, masked, cases.len()));
                }
            }
        }
        cases
    }

    fn name(&self) -> String {
        let masked = self.values.mask.is_some();
        format!("{:?} {:?}, mask {masked}", self.values.dims, self.spec.visibility)
    }

    /// Shapes of q, k, v, the result and the log-sum-exp.
    fn shapes(&self) -> [Vec<usize>; 5] {
        let d = &self.values.dims;
        [
            vec![d.batch, d.heads, d.queries, d.head_size],
            vec![d.batch, d.kv_heads, d.keys, d.head_size],
            vec![d.batch, d.kv_heads, d.keys, d.value_size],
            vec![d.batch, d.heads, d.queries, d.value_size],
            vec![d.batch, d.heads, d.queries],
        ]
    }
}

/// The result, the log-sum-exp, and the gradients of q, k and v.
fn attention<D: Device>(device: &D, case: &Case) -> Result<[Vec<f64>; 5]> {
    let lie = |number: usize| Lie::ALL[(case.lie + number) % 5];
    let place = |shape: &[usize], number, values: &[f64]| {
        Placed::new(device, case.dtype, shape, lie(number), values)
    };
    let output = |shape: &[usize], number| Placed::output(device, case.dtype, shape, lie(number));
    let [q_shape, k_shape, v_shape, out_shape, sums_shape] = case.shapes();
    let values = &case.values;
    let q = place(&q_shape, 0, &values.q)?;
    let k = place(&k_shape, 1, &values.k)?;
    let v = place(&v_shape, 2, &values.v)?;
    let mask_shape = [&sums_shape[..], &[values.dims.keys]].concat();
    let mask = |mask: &Vec<f64>| Placed::new(device, DType::U8, &mask_shape, lie(3), mask);
    let mask = values.mask.as_ref().map(mask).transpose()?;
    let mask = mask.as_ref().map(Placed::view);
    let out = output(&out_shape, 4)?;
    let sums = Placed::output(device, case.dtype.accumulator(), &sums_shape, lie(1))?;
    let (q, k, v) = (q.view(), k.view(), v.view());
    device.attention(case.spec, q, k, v, mask, out.view(), sums.view())?;
    let dout = place(&out_shape, 2, &case.dout)?;
    let (dq, dk, dv) = (output(&q_shape, 3)?, output(&k_shape, 4)?, output(&v_shape, 0)?);
    device.attention_backward(
        case.spec,
        q,
        k,
        v,
        mask,
        out.view(),
        sums.view(),
        dout.view(),
        dq.view(),
        dk.view(),
        dv.view(),
    )?;
    Ok([out.values()?, sums.values()?, dq.values()?, dk.values()?, dv.values()?])
}

/// Results and gradients of every size and visibility, with and without a mask, however the
/// operands lie. Rows that see nothing give 0.
pub fn attention_has_its_values_and_derivative<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for case in Case::all(dtype) {
            let [out, sums] = case.values.forward(case.spec);
            let gradients = case.values.backward(case.spec, &case.dout);
            let most = |values: &[f64]| values.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
            for got in on_both!(device, attention(&case)) {
                let name = case.name();
                assert_close(&format!("out {name}"), dtype, &got[0], &out, 1.0);
                let what = format!("log-sum-exp {name}");
                assert_close(&what, dtype.accumulator(), &got[1], &sums, 1.0);
                for (gradient, (got, want)) in
                    ["dq", "dk", "dv"].iter().zip(got[2..].iter().zip(&gradients))
                {
                    assert_close(&format!("{gradient} {name}"), dtype, got, want, 2.0 * most(want));
                }
            }
        }
    }
    Ok(())
}

/// Queries appended to a cache see all of it and what the whole sequence saw: the last rows of
/// causal attention are those of the whole.
pub fn causal_attention_is_aligned_at_the_end<D: Device>(device: &D) -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        let whole = Case::new(dtype, [1, 2, 1, 9, 9, 4, 4], Visibility::Causal, false, 0);
        let mut appended = Case::new(dtype, [1, 2, 1, 2, 9, 4, 4], Visibility::Causal, false, 0);
        let last_two = |values: &[f64]| {
            values.chunks(9 * 4).flat_map(|head| head[7 * 4..].to_vec()).collect::<Vec<f64>>()
        };
        appended.values.q = last_two(&whole.values.q);
        appended.values.k.clone_from(&whole.values.k);
        appended.values.v.clone_from(&whole.values.v);
        let long = on_both!(device, attention(&whole));
        let short = on_both!(device, attention(&appended));
        for (long, short) in long.iter().zip(&short) {
            assert_close("appended", dtype, &short[0], &last_two(&long[0]), 1.0);
        }
    }
    Ok(())
}

/// Large scores do not overflow, and hidden keys do not matter even where they hold NaN.
pub fn large_scores_and_hidden_keys_do_no_harm<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let mut case = Case::new(dtype, [1, 1, 1, 4, 4, 2, 3], Visibility::Causal, false, 1);
        case.values.q.iter_mut().for_each(|q| *q = (*q * 100.0).round());
        case.values.k.iter_mut().for_each(|k| *k = (*k * 100.0).round());
        let [out, _] = case.values.forward(case.spec);
        for got in on_both!(device, attention(&case)) {
            assert_close("large scores", dtype, &got[0], &out, 4.0);
            let finite = got.iter().flatten().all(|value| value.is_finite());
            assert!(finite, "{dtype}: gradients of large scores are finite");
        }
    }
    Ok(())
}

/// Queries, keys and values may be views of one buffer, and so may their gradients.
pub fn operands_may_share_a_buffer<D: Device>(device: &D) -> Result<()> {
    fn gradients<D: Device>(device: &D, case: &Case) -> Result<Vec<f64>> {
        // [B, T, 3, H, D], as one product for all three makes it.
        let shape = [2, 5, 3, 2, 4];
        let part = |which: usize| -> Result<Layout> {
            Layout::strided(&[2, 2, 5, 4], &[5 * 24, 4, 24, 1], which * 8)
        };
        let parts = [&case.values.q, &case.values.k, &case.values.v];
        let mut packed = vec![0.0; shape.iter().product()];
        for (which, values) in parts.into_iter().enumerate() {
            for (index, &value) in values.iter().enumerate() {
                packed[part(which)?.position(index)] = value;
            }
        }
        let packed = device.upload(HostVec::from_f64(case.dtype, &packed).as_slice())?;
        let gradient = device.alloc(case.dtype, 2 * 5 * 24)?;
        let view = |which| -> Result<_> { Ok(View::new(&packed, part(which)?)) };
        let of = |which| -> Result<_> { Ok(View::new(&gradient, part(which)?)) };
        let out = Placed::output(device, case.dtype, &[2, 2, 5, 4], Lie::Whole)?;
        let sums = Placed::output(device, case.dtype.accumulator(), &[2, 2, 5], Lie::Whole)?;
        let dout = Placed::new(device, case.dtype, &[2, 2, 5, 4], Lie::Whole, &case.dout)?;
        let (q, k, v) = (view(0)?, view(1)?, view(2)?);
        device.attention(case.spec, q, k, v, None, out.view(), sums.view())?;
        device.attention_backward(
            case.spec,
            q,
            k,
            v,
            None,
            out.view(),
            sums.view(),
            dout.view(),
            of(0)?,
            of(1)?,
            of(2)?,
        )?;
        let gradient = device.download(&gradient)?.to_f64();
        let mut together = vec![];
        for which in 0..3 {
            let layout = part(which)?;
            together.extend((0..80).map(|index| gradient[layout.position(index)]));
        }
        Ok(together)
    }
    for dtype in DType::FLOATS {
        let case = Case::new(dtype, [2, 2, 2, 5, 5, 4, 4], Visibility::Causal, false, 0);
        let want = case.values.backward(case.spec, &case.dout).concat();
        for got in on_both!(device, gradients(&case)) {
            assert_close("packed gradients", dtype, &got, &want, 4.0);
        }
    }
    Ok(())
}

/// Operands of other shapes and dtypes, and heads that do not divide, are refused.
pub fn unfit_attention_is_refused<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let new = |dtype, shape: &[usize]| Placed::output(device, dtype, shape, Lie::Whole);
        let float = |shape: &[usize]| new(DType::F32, shape);
        let spec = Attention { scale: 1.0, visibility: Visibility::All };
        let (q, k, v) = (float(&[1, 4, 3, 2])?, float(&[1, 2, 5, 2])?, float(&[1, 2, 5, 6])?);
        let (out, sums) = (float(&[1, 4, 3, 6])?, float(&[1, 4, 3])?);
        let run = |q: &Placed<D>, k: &Placed<D>, v: &Placed<D>, out: &Placed<D>| {
            device.attention(spec, q.view(), k.view(), v.view(), None, out.view(), sums.view())
        };
        refused_shape("three dimensions", run(&float(&[4, 3, 2])?, &k, &v, &out));
        refused_shape("another head size", run(&q, &float(&[1, 2, 5, 3])?, &v, &out));
        refused_shape("fewer values than keys", run(&q, &k, &float(&[1, 2, 4, 6])?, &out));
        refused_shape("another batch", run(&q, &float(&[2, 2, 5, 2])?, &v, &out));
        refused_shape("another result", run(&q, &k, &v, &float(&[1, 4, 3, 2])?));
        let three = [float(&[1, 3, 5, 2])?, float(&[1, 3, 5, 6])?];
        refused_shape("4 heads over 3", run(&q, &three[0], &three[1], &out));
        refused_dtype("mixed keys", run(&q, &new(DType::F64, &[1, 2, 5, 2])?, &v, &out));
        refused_dtype("mixed result", run(&q, &k, &v, &new(DType::F16, &[1, 4, 3, 6])?));
        let with_mask = |mask: &Placed<D>| {
            let (q, k, v, out) = (q.view(), k.view(), v.view(), out.view());
            device.attention(spec, q, k, v, Some(mask.view()), out, sums.view())
        };
        refused_shape("a short mask", with_mask(&new(DType::U8, &[1, 4, 3, 4])?));
        refused_dtype("a mask of floats", with_mask(&float(&[1, 4, 3, 5])?));
        let backward = |dq: &Placed<D>| {
            let (o, s, dk, dv) =
                (out.view(), sums.view(), float(&[1, 2, 5, 2])?, float(&[1, 2, 5, 6])?);
            let (q, k, v) = (q.view(), k.view(), v.view());
            let (dq, dk, dv) = (dq.view(), dk.view(), dv.view());
            device.attention_backward(spec, q, k, v, None, o, s, o, dq, dk, dv)
        };
        refused_shape("another gradient", backward(&float(&[1, 4, 3, 3])?));
        refused_dtype("mixed gradient", backward(&new(DType::F64, &[1, 4, 3, 2])?));
        Ok(())
    }
    on_both!(device, check());
    Ok(())
}

/// Equal inputs give equal bits, gradients of shared keys included.
pub fn attention_gives_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    let case = Case::new(DType::F32, [2, 4, 2, 100, 100, 16, 16], Visibility::Causal, false, 0);
    assert_same_bits("attention", || {
        let values = attention(device, &case)?.concat();
        Ok(values.into_iter().flat_map(f64::to_ne_bytes).collect())
    })
}
