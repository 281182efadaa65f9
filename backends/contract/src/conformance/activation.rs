//! Activations with a bias or a gate.

use super::oracle;
use super::placed::{Lie, Placed, assert_same_bits, draw, drawn};
use super::refusal::{refused_dtype, refused_shape};
use super::tolerance::{assert_close, assert_each_close};
use crate::{Activation, DType, Device, Result, Store};

const SHAPES: [&[usize]; 7] = [&[5], &[3, 8], &[2, 3, 65], &[4, 1], &[70, 6], &[0, 3], &[3, 0]];

const ACTIVATIONS: [Activation; 4] =
    [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Relu];

/// The inputs of one bias and activation.
struct Case {
    dtype: DType,
    shape: &'static [usize],
    lie: usize,
    activation: Option<Activation>,
    x: Vec<f64>,
    bias: Option<Vec<f64>>,
    dy: Vec<f64>,
}

impl Case {
    fn all(dtype: DType) -> Vec<Case> {
        let mut cases = vec![];
        for shape in SHAPES {
            for activation in ACTIVATIONS.into_iter().map(Some).chain([None]) {
                for with_bias in [true, false] {
                    let (count, columns) = (shape.iter().product(), shape[shape.len() - 1]);
                    let seed = cases.len() as u64;
                    cases.push(Case {
                        dtype,
                        shape,
                        lie: cases.len(),
                        activation,
                        x: draw(dtype, seed, count, -3.0, 3.0),
                        bias: with_bias.then(|| draw(dtype, 7, columns, -1.0, 1.0)),
                        dy: draw(dtype, 500 + seed, count, -2.0, 2.0),
                    });
                }
            }
        }
        cases
    }

    fn columns(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// `x + bias`.
    fn sum(&self) -> Vec<f64> {
        let bias = |i: usize| self.bias.as_ref().map_or(0.0, |bias| bias[i % self.columns()]);
        self.x.iter().enumerate().map(|(i, x)| x + bias(i)).collect()
    }

    fn out(&self) -> Vec<f64> {
        let value = |x| self.activation.map_or(x, |activation| oracle::activate(activation, x));
        self.sum().into_iter().map(value).collect()
    }

    fn dx(&self) -> Vec<f64> {
        let slope = |x| self.activation.map_or(1.0, |a| oracle::activation_slope(a, x));
        self.sum().into_iter().zip(&self.dy).map(|(x, dy)| slope(x) * dy).collect()
    }

    fn lie(&self, number: usize) -> Lie {
        Lie::ALL[(self.lie + number) % 5]
    }

    fn name(&self) -> String {
        format!("{:?}, bias {}, {:?}", self.activation, self.bias.is_some(), self.shape)
    }

    fn place_bias<D: Device>(&self, device: &D) -> Result<Option<Placed<D>>> {
        let place = |b: &Vec<f64>| Placed::new(device, self.dtype, &[b.len()], self.lie(2), b);
        self.bias.as_ref().map(place).transpose()
    }
}

/// The result, beside and over `x`.
fn bias_activation<D: Device>(device: &D, case: &Case) -> Result<[Vec<f64>; 2]> {
    let x = Placed::new(device, case.dtype, case.shape, case.lie(0), &case.x)?;
    let bias = case.place_bias(device)?;
    let bias = bias.as_ref().map(Placed::view);
    let out = Placed::output(device, case.dtype, case.shape, case.lie(1))?;
    device.bias_activation(case.activation, x.view(), bias, out.view())?;
    device.bias_activation(case.activation, x.view(), bias, x.view())?;
    Ok([out.values()?, x.values()?])
}

/// The gradients of `x` beside and over `dy`, and of the bias, overwritten and added to ones.
fn bias_activation_backward<D: Device>(device: &D, case: &Case) -> Result<[Vec<f64>; 4]> {
    let x = Placed::new(device, case.dtype, case.shape, case.lie(0), &case.x)?;
    let bias = case.place_bias(device)?;
    let bias = bias.as_ref().map(Placed::view);
    let dy = Placed::new(device, case.dtype, case.shape, case.lie(3), &case.dy)?;
    let dx = Placed::output(device, case.dtype, case.shape, case.lie(1))?;
    let columns = case.columns();
    let fresh = Placed::output(device, case.dtype, &[columns], case.lie(4))?;
    let added = Placed::new(device, case.dtype, &[columns], case.lie(2), &vec![1.0; columns])?;
    let run = |dx: &Placed<D>, dbias: &Placed<D>, store| {
        let dbias = Some((dbias.view(), store));
        device.bias_activation_backward(
            case.activation,
            x.view(),
            bias,
            dy.view(),
            dx.view(),
            dbias,
        )
    };
    run(&dx, &fresh, Store::Overwrite)?;
    run(&dy, &added, Store::Add)?;
    Ok([dx.values()?, dy.values()?, fresh.values()?, added.values()?])
}

/// Every activation, with and without a bias, beside and in place.
pub fn activations_with_a_bias_have_their_values<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for case in Case::all(dtype) {
            let want = case.out();
            for got in on_both!(device, bias_activation(&case)).as_flattened() {
                assert_close(&case.name(), dtype, got, &want, 1.0);
            }
        }
    }
    Ok(())
}

/// Gradients of the input and the bias.
pub fn activations_with_a_bias_have_their_derivatives<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for case in Case::all(dtype) {
            let (want, columns) = (case.dx(), case.columns());
            let (mut sums, mut magnitude) = (vec![0.0; columns], vec![1.0; columns]);
            for (i, dx) in want.iter().enumerate() {
                sums[i % columns] += dx;
                magnitude[i % columns] += dx.abs();
            }
            let added: Vec<f64> = sums.iter().map(|sum| sum + 1.0).collect();
            for got in on_both!(device, bias_activation_backward(&case)) {
                let name = case.name();
                assert_close(&format!("dx {name}"), dtype, &got[0], &want, 1.0);
                assert_close(&format!("dx over dy {name}"), dtype, &got[1], &want, 1.0);
                assert_each_close(&format!("dbias {name}"), dtype, &got[2], &sums, &magnitude);
                assert_each_close(&format!("added {name}"), dtype, &got[3], &added, &magnitude);
            }
        }
    }
    Ok(())
}

/// The result, and the gradients of the gate and of what it lets through.
fn gated<D: Device>(
    device: &D,
    dtype: DType,
    (activation, shape, lie): (Activation, &[usize], usize),
    [gate, up, dy]: [&[f64]; 3],
) -> Result<[Vec<f64>; 3]> {
    let lie = |number: usize| Lie::ALL[(lie + number) % 5];
    let place = |number, values| Placed::new(device, dtype, shape, lie(number), values);
    let output = |number| Placed::output(device, dtype, shape, lie(number));
    let (gate, up, dy) = (place(0, gate)?, place(1, up)?, place(2, dy)?);
    let (out, dgate, dup) = (output(3)?, output(4)?, output(5)?);
    device.gated_activation(activation, gate.view(), up.view(), out.view())?;
    device.gated_activation_backward(
        activation,
        gate.view(),
        up.view(),
        dy.view(),
        dgate.view(),
        dup.view(),
    )?;
    Ok([out.values()?, dgate.values()?, dup.values()?])
}

/// Gated activations and the gradients of both sides, however the operands lie.
pub fn gated_activations_have_their_values_and_derivatives<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for (lie, shape) in SHAPES.into_iter().enumerate() {
            for activation in ACTIVATIONS {
                let count = shape.iter().product();
                let gate = draw(dtype, 1, count, -3.0, 3.0);
                let up = draw(dtype, 2, count, -2.0, 2.0);
                let dy = draw(dtype, 3, count, -2.0, 2.0);
                let each = |f: &dyn Fn(usize) -> f64| (0..count).map(f).collect::<Vec<f64>>();
                let want = [
                    each(&|i| oracle::activate(activation, gate[i]) * up[i]),
                    each(&|i| oracle::activation_slope(activation, gate[i]) * up[i] * dy[i]),
                    each(&|i| oracle::activate(activation, gate[i]) * dy[i]),
                ];
                let values = [&gate[..], &up, &dy];
                for got in on_both!(device, gated(dtype, (activation, shape, lie), values)) {
                    for (name, (got, want)) in
                        ["out", "dgate", "dup"].iter().zip(got.iter().zip(&want))
                    {
                        let what = format!("{name} of {activation:?} {shape:?}");
                        assert_close(&what, dtype, got, want, 2.0);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Operands of other shapes and dtypes are refused.
pub fn unfit_activations_are_refused<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let gelu = Activation::Gelu;
        let (x, _) = drawn(device, DType::F32, 1, &[2, 3])?;
        let (other, _) = drawn(device, DType::F32, 1, &[3, 2])?;
        let (double, _) = drawn(device, DType::F64, 1, &[2, 3])?;
        let (bias, _) = drawn(device, DType::F32, 1, &[3])?;
        let (long, _) = drawn(device, DType::F32, 1, &[4])?;
        let (wide, _) = drawn(device, DType::F64, 1, &[3])?;
        let (x, other, double) = (x.view(), other.view(), double.view());
        let (bias, long, wide) = (bias.view(), long.view(), wide.view());
        refused_shape("out", device.bias_activation(Some(gelu), x, Some(bias), other));
        refused_dtype("out", device.bias_activation(Some(gelu), x, Some(bias), double));
        refused_shape("bias", device.bias_activation(None, x, Some(long), x));
        refused_dtype("bias", device.bias_activation(None, x, Some(wide), x));
        let dbias = Some((long, Store::Overwrite));
        refused_shape("dbias", device.bias_activation_backward(None, x, None, x, x, dbias));
        let dbias = Some((wide, Store::Overwrite));
        refused_dtype("dbias", device.bias_activation_backward(None, x, None, x, x, dbias));
        refused_shape("dy", device.bias_activation_backward(None, x, None, other, x, None));
        refused_shape("up", device.gated_activation(gelu, x, other, x));
        refused_dtype("up", device.gated_activation(gelu, x, double, x));
        refused_shape("dup", device.gated_activation_backward(gelu, x, x, x, x, other));
        refused_dtype("dup", device.gated_activation_backward(gelu, x, x, x, x, double));
        Ok(())
    }
    on_both!(device, check());
    Ok(())
}

/// Equal inputs give equal bits, the sum of the bias gradient included.
pub fn activations_give_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    let shape = [500, 70];
    let (x, _) = drawn(device, DType::F32, 1, &shape)?;
    let (dy, _) = drawn(device, DType::F32, 2, &shape)?;
    let activation = Some(Activation::Gelu);
    assert_same_bits("bias_activation", || {
        let out = Placed::output(device, DType::F32, &shape, Lie::Whole)?;
        let dbias = Placed::output(device, DType::F32, &[70], Lie::Whole)?;
        device.bias_activation(activation, x.view(), None, out.view())?;
        let mut bytes = out.bytes()?;
        let target = Some((dbias.view(), Store::Overwrite));
        let (x, dy) = (x.view(), dy.view());
        device.bias_activation_backward(activation, x, None, dy, out.view(), target)?;
        bytes.extend(out.bytes()?);
        bytes.extend(dbias.bytes()?);
        Ok(bytes)
    })
}
