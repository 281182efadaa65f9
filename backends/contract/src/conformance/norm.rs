//! Layer normalisation and root-mean-square normalisation.

use super::oracle::fused::{self, Normalized};
use super::placed::{Lie, Placed, assert_same_bits, draw, drawn, rounded};
use super::refusal::{refused_dtype, refused_shape};
use super::tolerance::{assert_close, assert_each_close};
use crate::{DType, Device, Norm, NormKind, NormOperands, Result, Store};

const SHAPES: [&[usize]; 7] = [&[5], &[3, 8], &[2, 3, 65], &[4, 1], &[2, 1000], &[70, 6], &[0, 3]];

const NORMS: [Norm; 2] =
    [Norm { kind: NormKind::Layer, epsilon: 1e-5 }, Norm { kind: NormKind::Rms, epsilon: 1e-6 }];

/// The inputs of one normalisation.
struct Case {
    dtype: DType,
    shape: &'static [usize],
    lie: usize,
    norm: Norm,
    x: Vec<f64>,
    residual: Option<Vec<f64>>,
    weight: Option<Vec<f64>>,
    bias: Option<Vec<f64>>,
}

impl Case {
    /// Every combination of options, each with another way to lie.
    fn all(dtype: DType) -> Vec<Case> {
        let mut cases = vec![];
        for shape in SHAPES {
            for norm in NORMS {
                for options in 0..8 {
                    let (count, columns) = (shape.iter().product(), shape[shape.len() - 1]);
                    let with = |bit: usize, seed, count| {
                        (options & bit != 0).then(|| draw(dtype, seed, count, -2.0, 2.0))
                    };
                    cases.push(Case {
                        dtype,
                        shape,
                        lie: cases.len(),
                        norm,
                        x: draw(dtype, cases.len() as u64, count, -2.0, 2.0),
                        residual: with(1, 7, count),
                        weight: with(2, 8, columns),
                        bias: with(4, 9, columns),
                    });
                }
            }
        }
        cases
    }

    fn columns(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    fn rows(&self) -> usize {
        self.shape[..self.shape.len() - 1].iter().product()
    }

    /// What is normalised, as it is stored.
    fn sum(&self) -> Vec<f64> {
        match &self.residual {
            None => self.x.clone(),
            Some(residual) => {
                let sum: Vec<f64> = self.x.iter().zip(residual).map(|(x, r)| x + r).collect();
                rounded(self.dtype, &sum)
            }
        }
    }

    fn oracle(&self) -> Normalized {
        let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
        fused::normalize(self.norm, self.columns(), &self.sum(), weight, bias)
    }

    fn name(&self) -> String {
        let given = [self.residual.is_some(), self.weight.is_some(), self.bias.is_some()];
        format!("{:?} {:?}, residual, weight, bias: {given:?}", self.norm.kind, self.shape)
    }

    fn place<D: Device>(&self, device: &D, number: usize, values: &[f64]) -> Result<Placed<D>> {
        let lie = Lie::ALL[(self.lie + number) % 5];
        Placed::new(device, self.dtype, self.shape, lie, values)
    }

    fn vector<D: Device>(
        &self,
        device: &D,
        number: usize,
        values: &Option<Vec<f64>>,
    ) -> Result<Option<Placed<D>>> {
        let lie = Lie::ALL[(self.lie + number) % 5];
        let place = |v: &Vec<f64>| Placed::new(device, self.dtype, &[self.columns()], lie, v);
        values.as_ref().map(place).transpose()
    }
}

/// Sum, statistics and result.
fn normalize<D: Device>(device: &D, case: &Case) -> Result<[Vec<f64>; 3]> {
    let x = case.place(device, 0, &case.x)?;
    let residual = case.residual.as_ref().map(|r| case.place(device, 1, r)).transpose()?;
    let weight = case.vector(device, 2, &case.weight)?;
    let bias = case.vector(device, 3, &case.bias)?;
    let sum = Placed::output(device, case.dtype, case.shape, Lie::ALL[(case.lie + 4) % 5])?;
    let out = Placed::output(device, case.dtype, case.shape, Lie::ALL[(case.lie + 2) % 5])?;
    let accumulator = case.dtype.accumulator();
    let statistics = Placed::output(device, accumulator, &[2, case.rows()], Lie::Whole)?;
    let operands = NormOperands {
        x: x.view(),
        residual: residual.as_ref().map(Placed::view),
        weight: weight.as_ref().map(Placed::view),
        bias: bias.as_ref().map(Placed::view),
    };
    let written = case.residual.is_some().then(|| sum.view());
    device.normalize(case.norm, operands, written, statistics.view(), out.view())?;
    let sum = if written.is_some() { sum.values()? } else { case.x.clone() };
    Ok([sum, statistics.values()?, out.values()?])
}

/// Results, statistics and sums with every combination of residual, weight and bias.
pub fn normalisations_have_their_values<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for case in Case::all(dtype) {
            let want = case.oracle();
            let statistics = [&want.means[..], &want.reciprocals].concat();
            for [sum, got_statistics, out] in on_both!(device, normalize(&case)) {
                let name = case.name();
                assert_eq!(sum, case.sum(), "{name} {dtype}: the stored sum");
                let what = format!("statistics of {name}");
                assert_close(&what, dtype.accumulator(), &got_statistics, &statistics, 4.0);
                assert_close(&name, dtype, &out, &want.out, 4.0);
            }
        }
    }
    Ok(())
}

/// The sum may be written over `x` or over the residual, and the result over either.
pub fn normalisations_work_in_place<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        for dtype in DType::FLOATS {
            for norm in NORMS {
                let (x, x_values) = drawn(device, dtype, 1, &[5, 70])?;
                let statistics = Placed::output(device, dtype.accumulator(), &[2, 5], Lie::Whole)?;
                let out = Placed::output(device, dtype, &[5, 70], Lie::Whole)?;
                let (residual, r_values) = drawn(device, dtype, 2, &[5, 70])?;
                let sum: Vec<f64> = x_values.iter().zip(&r_values).map(|(x, r)| x + r).collect();
                let sum = rounded(dtype, &sum);
                let want = fused::normalize(norm, 70, &sum, None, None).out;
                let residual = Some(residual.view());
                let operands = NormOperands { x: x.view(), residual, weight: None, bias: None };
                let written = Some(x.view());
                device.normalize(norm, operands, written, statistics.view(), out.view())?;
                assert_eq!(x.values()?, sum, "{dtype}: the sum over x");
                assert_close("beside", dtype, &out.values()?, &want, 4.0);
                let operands =
                    NormOperands { x: x.view(), residual: None, weight: None, bias: None };
                device.normalize(norm, operands, None, statistics.view(), x.view())?;
                assert_close("over x", dtype, &x.values()?, &want, 4.0);
            }
        }
        Ok(())
    }
    on_both!(device, check());
    Ok(())
}

/// Gradients of the input, the weight and the bias. With `dsum` what reaches the sum by another
/// way; with `store` whether weight and bias gradients are added to what is there.
fn normalize_backward<D: Device>(
    device: &D,
    case: &Case,
    of: &Normalized,
    (dy, dsum): (&[f64], Option<&[f64]>),
    store: Store,
) -> Result<[Vec<f64>; 3]> {
    let sum = case.place(device, 0, &case.sum())?;
    let weight = case.vector(device, 2, &case.weight)?;
    let accumulator = case.dtype.accumulator();
    let statistics = [&of.means[..], &of.reciprocals].concat();
    let rows = case.rows();
    let statistics = Placed::new(device, accumulator, &[2, rows], Lie::Whole, &statistics)?;
    let dy = case.place(device, 1, dy)?;
    let dsum = dsum.map(|dsum| case.place(device, 3, dsum)).transpose()?;
    let dx = Placed::output(device, case.dtype, case.shape, Lie::ALL[(case.lie + 4) % 5])?;
    let old = match store {
        Store::Overwrite => f64::NAN,
        Store::Add => 1.0,
    };
    let old = Some(vec![old; case.columns()]);
    let dweight = case.vector(device, 1, &old)?.expect("values were given");
    let dbias = case.vector(device, 4, &old)?.expect("values were given");
    device.normalize_backward(
        case.norm,
        sum.view(),
        weight.as_ref().map(Placed::view),
        statistics.view(),
        dy.view(),
        dsum.as_ref().map(Placed::view),
        dx.view(),
        Some((dweight.view(), store)),
        Some((dbias.view(), store)),
    )?;
    Ok([dx.values()?, dweight.values()?, dbias.values()?])
}

/// All gradients, with and without a second gradient of the sum, overwriting and adding.
pub fn normalisations_have_their_derivatives<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for case in Case::all(dtype) {
            let count = case.x.len();
            let dy = draw(dtype, 20, count, -2.0, 2.0);
            let dsum = (case.lie % 3 == 0).then(|| draw(dtype, 21, count, -2.0, 2.0));
            let store = [Store::Overwrite, Store::Add][case.lie % 2];
            let (columns, weight) = (case.columns(), case.weight.as_deref());
            let of = case.oracle();
            let mut want =
                fused::normalize_backward(case.norm.kind, columns, &case.sum(), weight, &of, &dy);
            let mut magnitude: Vec<f64> =
                (0..count).map(|i| 8.0 * of.reciprocals[i / columns].max(1.0)).collect();
            for (i, dsum) in dsum.iter().flatten().enumerate() {
                want[0][i] += dsum;
                magnitude[i] += dsum.abs();
            }
            if store == Store::Add {
                want[1..].iter_mut().flatten().for_each(|value| *value += 1.0);
            }
            let over_rows = vec![6.0 * (case.rows() + 1) as f64; columns];
            let given = (&dy[..], dsum.as_deref());
            for [dx, dweight, dbias] in
                on_both!(device, normalize_backward(&case, &of, given, store))
            {
                let name = case.name();
                assert_each_close(&format!("dx {name}"), dtype, &dx, &want[0], &magnitude);
                assert_each_close(
                    &format!("dweight {name}"),
                    dtype,
                    &dweight,
                    &want[1],
                    &over_rows,
                );
                assert_each_close(&format!("dbias {name}"), dtype, &dbias, &want[2], &over_rows);
            }
        }
    }
    Ok(())
}

/// Operands of other shapes and dtypes, rows of no elements, and a residual without a place for
/// the sum are refused.
pub fn unfit_normalisations_are_refused<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let new = |dtype, shape: &[usize]| Placed::output(device, dtype, shape, Lie::Whole);
        let (x, other) = (new(DType::F32, &[2, 3])?, new(DType::F32, &[3, 2])?);
        let (long, double) = (new(DType::F32, &[4])?, new(DType::F64, &[2, 3])?);
        let (statistics, out) = (new(DType::F32, &[2, 2])?, new(DType::F32, &[2, 3])?);
        let plain = NormOperands { x: x.view(), residual: None, weight: None, bias: None };
        let run = |operands, sum, statistics: &Placed<D>, out: &Placed<D>| {
            device.normalize(NORMS[0], operands, sum, statistics.view(), out.view())
        };
        let with_residual = NormOperands { residual: Some(other.view()), ..plain };
        refused_shape("residual", run(with_residual, Some(out.view()), &statistics, &out));
        let with_residual = NormOperands { residual: Some(x.view()), ..plain };
        refused_shape("no place for the sum", run(with_residual, None, &statistics, &out));
        let with_weight = NormOperands { weight: Some(long.view()), ..plain };
        refused_shape("weight", run(with_weight, None, &statistics, &out));
        let with_bias = NormOperands { bias: Some(long.view()), ..plain };
        refused_shape("bias", run(with_bias, None, &statistics, &out));
        refused_shape("statistics", run(plain, None, &long, &out));
        refused_shape("result", run(plain, None, &statistics, &other));
        refused_dtype("result", run(plain, None, &statistics, &double));
        refused_dtype("statistics", run(plain, None, &new(DType::F64, &[2, 2])?, &out));
        let empty = new(DType::F32, &[2, 0])?;
        let of_nothing = NormOperands { x: empty.view(), ..plain };
        refused_shape("rows of nothing", run(of_nothing, None, &statistics, &empty));
        Ok(())
    }
    on_both!(device, check());
    Ok(())
}

/// Equal inputs give equal bits, sums over rows included.
pub fn normalisations_give_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    let shape = [300, 65];
    let (x, _) = drawn(device, DType::F32, 1, &shape)?;
    let (dy, _) = drawn(device, DType::F32, 2, &shape)?;
    assert_same_bits("normalize", || {
        let new = |shape: &[usize]| Placed::output(device, DType::F32, shape, Lie::Whole);
        let (out, statistics) = (new(&shape)?, new(&[2, 300])?);
        let (dweight, dbias) = (new(&[65])?, new(&[65])?);
        let operands = NormOperands { x: x.view(), residual: None, weight: None, bias: None };
        device.normalize(NORMS[0], operands, None, statistics.view(), out.view())?;
        let mut bytes = [out.bytes()?, statistics.bytes()?].concat();
        device.normalize_backward(
            NORMS[0],
            x.view(),
            None,
            statistics.view(),
            dy.view(),
            None,
            out.view(),
            Some((dweight.view(), Store::Overwrite)),
            Some((dbias.view(), Store::Overwrite)),
        )?;
        for part in [out, dweight, dbias] {
            bytes.extend(part.bytes()?);
        }
        Ok(bytes)
    })
}
