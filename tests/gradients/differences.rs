//! The checker: the matrix of derivatives by central differences, and what the reverse walk makes
//! of it for inputs and upstream gradients that lie in memory in every way a tensor can.

use std::ops::Range;

use sneppx::autograd::LeafGrads;
use sneppx::contract::{Kernels, Memory, RandomKey, rng};
use sneppx::cpu::Cpu;
use sneppx::{DType, Result, Tensor};

/// Everything here is `f64` on one CPU.
pub type T = Tensor<Cpu>;

/// Distance of the two points of a difference.
const STEP: f64 = 1e-5;

/// Largest error, relative to one plus the largest derivative.
const TOLERANCE: f64 = 1e-7;

/// A device with one thread: the sizes are small.
pub fn device() -> Cpu {
    Cpu::with_threads(1).expect("one thread")
}

/// [`check_in`] with inputs in `-2..2`.
pub fn check(rule: &str, shapes: &[&[usize]], operation: impl Fn(&[T]) -> Result<T> + Send + Sync) {
    check_in(rule, -2.0..2.0, shapes, operation);
}

/// Holds the derivatives of `operation` on random inputs of `shapes` against differences. One of
/// the rules it records must be called `rule`.
pub fn check_in(
    rule: &str,
    range: Range<f64>,
    shapes: &[&[usize]],
    operation: impl Fn(&[T]) -> Result<T> + Send + Sync,
) {
    let device = device();
    let case =
        Case { device: device.clone(), rule, shapes, values: draw(&range, shapes), operation };
    if let Err(error) = device.enter(|| case.run()) {
        panic!("{rule} of {shapes:?}: {error}");
    }
}

/// Random values in `range`, different for each input.
fn draw(range: &Range<f64>, shapes: &[&[usize]]) -> Vec<Vec<f64>> {
    let values = |(input, shape): (usize, &&[usize])| {
        let key = RandomKey::from_seed(11).with_number(input as u64);
        let value = |i| {
            range.start + (range.end - range.start) * f64::from(rng::uniform(key.word(i as u64)))
        };
        (0..shape.iter().product::<usize>()).map(value).collect()
    };
    shapes.iter().enumerate().map(values).collect()
}

/// How values lie in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// Row-major.
    Packed,
    /// With the first dimension innermost.
    Reversed,
    /// Inside larger memory full of NaN.
    Padded,
}

impl Place {
    const ALL: [Place; 3] = [Place::Packed, Place::Reversed, Place::Padded];

    fn put(self, device: &Cpu, values: &[f64], shape: &[usize]) -> Result<T> {
        let packed = T::from_slice(device, values, shape)?;
        match self {
            Place::Packed => Ok(packed),
            Place::Reversed => {
                let order: Vec<usize> = (0..shape.len()).rev().collect();
                let reversed = packed.permute(&order)?;
                let values = reversed.to_vec::<f64>()?;
                T::from_slice(device, &values, reversed.shape())?.permute(&order)
            }
            Place::Padded => {
                let outer: Vec<usize> = shape.iter().map(|size| size + 3).collect();
                let mut room = T::full(device, DType::F64, &outer, f64::NAN)?;
                for (dim, &size) in shape.iter().enumerate() {
                    room = room.slice(dim, 1, size)?;
                }
                device.copy(packed.view(), room.view())?;
                Ok(room)
            }
        }
    }
}

/// How the gradient of the result arrives.
#[derive(Clone, Copy, Debug)]
enum Upstream {
    /// As a tensor that others hold too.
    Shared(Place),
    /// As one number that is repeated by a stride of 0.
    Repeated,
    /// As memory that the rule may overwrite.
    Owned,
}

/// How often inputs are used, and what they are.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// One use of leaves.
    Once,
    /// Two uses of leaves.
    Twice,
    /// Two uses of results of other operations.
    TwiceComputed,
}

struct Case<'a, F> {
    device: Cpu,
    rule: &'a str,
    shapes: &'a [&'a [usize]],
    values: Vec<Vec<f64>>,
    operation: F,
}

/// `[input][element of the input][element of the result]`
type Derivatives = Vec<Vec<Vec<f64>>>;

impl<F: Fn(&[T]) -> Result<T>> Case<'_, F> {
    fn run(&self) -> Result<()> {
        let names = rules_below(&(self.operation)(&self.leaves(Place::Packed, None)?)?);
        assert!(names.contains(&self.rule), "{} is not among {names:?}", self.rule);
        let derivatives = self.differences()?;
        for place in Place::ALL {
            for upstream in [
                Upstream::Shared(Place::Packed),
                Upstream::Shared(Place::Reversed),
                Upstream::Shared(Place::Padded),
                Upstream::Repeated,
                Upstream::Owned,
            ] {
                for usage in [Use::Once, Use::Twice, Use::TwiceComputed] {
                    self.compare(&derivatives, place, upstream, usage, None)?;
                }
            }
        }
        for input in 0..self.shapes.len() {
            let upstream = Upstream::Shared(Place::Packed);
            self.compare(&derivatives, Place::Packed, upstream, Use::Once, Some(input))?;
        }
        Ok(())
    }

    /// The inputs as leaves; with `only`, the others need no gradient.
    fn leaves(&self, place: Place, only: Option<usize>) -> Result<Vec<T>> {
        let leaf = |(input, (values, shape)): (usize, (&Vec<f64>, &&[usize]))| {
            let x = place.put(&self.device, values, shape)?;
            if only.is_none_or(|only| only == input) { x.requires_grad() } else { Ok(x) }
        };
        self.values.iter().zip(self.shapes).enumerate().map(leaf).collect()
    }

    fn differences(&self) -> Result<Derivatives> {
        let mut all = Vec::new();
        for input in 0..self.values.len() {
            let mut of_input = Vec::new();
            for element in 0..self.values[input].len() {
                let above = self.shifted(input, element, STEP)?;
                let below = self.shifted(input, element, -STEP)?;
                let slope = |(above, below): (&f64, &f64)| (above - below) / (2.0 * STEP);
                of_input.push(above.iter().zip(&below).map(slope).collect());
            }
            all.push(of_input);
        }
        Ok(all)
    }

    /// The result with one element of one input moved by `step`.
    fn shifted(&self, input: usize, element: usize, step: f64) -> Result<Vec<f64>> {
        let mut inputs = Vec::new();
        for (number, (values, shape)) in self.values.iter().zip(self.shapes).enumerate() {
            let mut values = values.clone();
            if number == input {
                values[element] += step;
            }
            inputs.push(T::from_slice(&self.device, &values, shape)?);
        }
        (self.operation)(&inputs)?.to_vec::<f64>()
    }

    fn compare(
        &self,
        derivatives: &Derivatives,
        place: Place,
        upstream: Upstream,
        usage: Use,
        only: Option<usize>,
    ) -> Result<()> {
        let leaves = self.leaves(place, only)?;
        let (out, factor) = match usage {
            Use::Once => ((self.operation)(&leaves)?, 1.0),
            Use::Twice => ((self.operation)(&leaves)?.add(&(self.operation)(&leaves)?)?, 2.0),
            Use::TwiceComputed => {
                let computed: Vec<T> =
                    leaves.iter().map(|leaf| leaf.affine(1.0, 0.0)).collect::<Result<_>>()?;
                let first = (self.operation)(&computed)?;
                (first.add(&(self.operation)(&computed)?)?, 2.0)
            }
        };
        let weights = draw(&(0.5..1.5), &[&out.shape()[..]]).remove(0);
        let mut sink = LeafGrads::new(&self.device);
        let weights = match upstream {
            Upstream::Shared(place) => {
                let grad = place.put(&self.device, &weights, out.shape())?;
                out.backward_with(grad, &mut sink)?;
                weights
            }
            Upstream::Repeated => {
                let grad = T::scalar(&self.device, 0.75)?.broadcast_to(out.shape())?;
                out.backward_with(grad, &mut sink)?;
                vec![0.75; weights.len()]
            }
            Upstream::Owned => {
                let grad = Place::Packed.put(&self.device, &weights, out.shape())?;
                out.affine(1.0, 0.0)?.backward_with(grad, &mut sink)?;
                weights
            }
        };
        for (input, leaf) in leaves.iter().enumerate() {
            let what = format!(
                "{} of {:?}: input {input} {place:?}, {upstream:?}, {usage:?}, only {only:?}",
                self.rule, self.shapes
            );
            if only.is_some_and(|only| only != input) {
                assert!(leaf.grad().is_none(), "{what}: a gradient nobody wants");
                continue;
            }
            let grad = leaf.grad().unwrap_or_else(|| panic!("{what}: no gradient"));
            assert_eq!(grad.shape(), leaf.shape(), "{what}");
            let want = expected(&derivatives[input], &weights, factor);
            close(&what, &grad.to_vec::<f64>()?, &want);
        }
        Ok(())
    }
}

fn expected(derivatives: &[Vec<f64>], weights: &[f64], factor: f64) -> Vec<f64> {
    let product = |row: &Vec<f64>| row.iter().zip(weights).map(|(d, w)| d * w).sum::<f64>();
    derivatives.iter().map(|row| factor * product(row)).collect()
}

fn close(what: &str, got: &[f64], want: &[f64]) {
    let scale = want.iter().fold(1.0, |scale: f64, w| scale.max(1.0 + w.abs()));
    for (element, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got - want).abs();
        assert!(error <= TOLERANCE * scale, "{what}: element {element} is {got}, want {want}");
    }
}

/// The names of all rules below `y`, which are used up.
fn rules_below(y: &T) -> Vec<&'static str> {
    let mut names = Vec::new();
    let mut queue: Vec<_> = y.origin().cloned().into_iter().collect();
    while let Some(node) = queue.pop() {
        names.extend(node.take_rule().map(|rule| rule.name()));
        queue.extend(node.inputs().iter().flatten().cloned());
    }
    names
}

#[test]
#[should_panic(expected = "element 0 is")]
fn a_wrong_derivative_is_noticed() {
    // A factor of 1 + 1e-5 that the derivative leaves out.
    check("mul", &[&[3]], |x| {
        let hidden = x[0].detach().affine(1e-5, 0.0)?;
        x[0].mul(&x[0])?.add(&hidden)
    });
}
