//! Sums of squares in fixed blocks, the finite check, and sums along a tree.

use sneppx_contract::{DType, Error, Result, SUM_BLOCK, View, check};

use crate::CpuBuffer;
use crate::element::{Float, Number, Real, with_float};
use crate::lanes;
use crate::operands::Operands;
use crate::parallel::{for_each_block, map_indices};
use crate::rows::{RowSource, RowTarget};
use crate::simd::vectorized;

type V<'a> = View<'a, CpuBuffer>;

/// Elements that a tree is summed over at once: its partial sums stay in the first cache.
const PART: usize = 1024;

/// See [`Kernels::sums_of_squares`](sneppx_contract::Kernels::sums_of_squares).
pub(crate) fn sums_of_squares(x: V<'_>, out: V<'_>) -> Result<()> {
    const NAME: &str = "sums_of_squares";
    check::float(NAME, x)?;
    let len = check::runs(NAME, &[x])?;
    check::output(NAME, out)?;
    check::dtype(NAME, out, x.dtype().accumulator())?;
    check::shape(NAME, "the output", out, &[len.div_ceil(SUM_BLOCK)])?;
    with_float!(NAME, x.dtype(), T => squares::<T>(NAME, len, x, out))
}

/// See [`Kernels::all_finite`](sneppx_contract::Kernels::all_finite).
pub(crate) fn all_finite(x: V<'_>, out: V<'_>) -> Result<()> {
    const NAME: &str = "all_finite";
    check::fits(NAME, x)?;
    check::float(NAME, x)?;
    check::output(NAME, out)?;
    check::dtype(NAME, out, DType::U8)?;
    check::shape(NAME, "the output", out, &[1])?;
    let finite = with_float!(NAME, x.dtype(), T => finite::<T>(NAME, x))?;
    let operands = Operands::of(NAME);
    let out = operands.output::<u8>(out)?;
    // SAFETY: the one element of the output.
    unsafe { out.pointer().write(u8::from(finite)) };
    Ok(())
}

/// See [`Kernels::tree_sum`](sneppx_contract::Kernels::tree_sum).
pub(crate) fn tree_sum(nodes: &[V<'_>], out: V<'_>) -> Result<()> {
    const NAME: &str = "tree_sum";
    if nodes.is_empty() {
        return Err(Error::shape(NAME, "there are no nodes to sum"));
    }
    check::float_elementwise(NAME, nodes, out)?;
    with_float!(NAME, out.dtype(), T => tree::<T>(NAME, nodes, out))
}

fn squares<T: Float>(name: &'static str, len: usize, x: V<'_>, out: V<'_>) -> Result<()> {
    let operands = Operands::of(name);
    let out = operands.output::<T::Acc>(out)?;
    let x = operands.input::<T>(x)?;
    let stride = out.layout().strides()[0];
    for_each_block(len, SUM_BLOCK, len, |block| {
        // SAFETY: a block of the run, which nobody writes.
        let run = unsafe { x.run(block.start, block.len()) };
        let sum = match T::native(run) {
            Some(run) => sum_of_squares(run),
            None => {
                let mut wide = [T::Acc::ZERO; SUM_BLOCK];
                T::load(run, &mut wide[..run.len()]);
                sum_of_squares(&wide[..run.len()])
            }
        };
        // SAFETY: each block has an element of its own.
        unsafe { out.pointer().add(block.start / SUM_BLOCK * stride).write(sum) };
    });
    Ok(())
}

fn finite<T: Float>(name: &'static str, x: V<'_>) -> Result<bool> {
    let operands = Operands::of(name);
    // Order does not matter here, so a contiguous view can be cut anywhere.
    let layout = x.layout.coalesce();
    let x = RowSource::new(operands.input::<T>(View::new(x.buffer, layout))?)?;
    let (count, columns) = (x.rows.count, x.rows.columns);
    let parts = columns.div_ceil(SUM_BLOCK).max(1);
    let found = map_indices(count * parts, count * columns, |index| {
        let start = index % parts * SUM_BLOCK;
        let part = start..columns.min(start + SUM_BLOCK);
        let mut scratch = Vec::new();
        // SAFETY: nobody writes.
        are_finite(unsafe { x.read(index / parts, part, &mut scratch) })
    });
    Ok(found.into_iter().all(|finite| finite))
}

fn tree<'a, T: Float>(name: &'static str, nodes: &[V<'a>], out: V<'a>) -> Result<()> {
    let operands = Operands::of(name);
    let out = RowTarget::new(operands.output::<T>(out)?)?;
    let source = |&view| RowSource::new(operands.input_in_place::<T>(view)?);
    let nodes = nodes.iter().map(source).collect::<Result<Vec<_>>>()?;
    let (count, columns) = (out.rows.count, out.rows.columns);
    let parts = columns.div_ceil(PART).max(1);
    let cost = count * columns * nodes.len();
    for_each_block(count * parts, 16, cost, |task| {
        let mut scratch = [const { Vec::new() }; 3];
        let [from_left, from_right, to] = &mut scratch;
        let mut counter = vec![[T::Acc::ZERO; PART]; nodes.len().ilog2() as usize + 1];
        for index in task {
            let (row, start) = (index / parts, index % parts * PART);
            let part = start..columns.min(start + PART);
            // SAFETY: tasks have parts of their own, read before they are written.
            unsafe {
                // Neighbouring nodes are joined as they are read.
                let mut pair = |number: usize, sum: &mut [T::Acc]| {
                    let left = nodes[2 * number].read(row, part.clone(), from_left);
                    match nodes.get(2 * number + 1) {
                        Some(right) => add(left, right.read(row, part.clone(), from_right), sum),
                        None => sum.copy_from_slice(left),
                    }
                };
                let total = add_tree(nodes.len().div_ceil(2), part.len(), &mut counter, &mut pair);
                out.write(row, part.clone(), to, |out| out.copy_from_slice(total));
            }
        }
    });
    Ok(())
}

/// A binary counter of partial sums: slot `level` holds a whole node of that level while bit
/// `level` of the number of nodes so far is set. At the end the right edge is joined upwards.
fn add_tree<'c, A: Real>(
    nodes: usize,
    len: usize,
    counter: &'c mut [[A; PART]],
    read: &mut impl FnMut(usize, &mut [A]),
) -> &'c [A] {
    let mut carry = [A::ZERO; PART];
    for node in 0..nodes {
        let mut level = 0;
        if node & 1 == 0 {
            read(node, &mut counter[0][..len]);
            continue;
        }
        read(node, &mut carry[..len]);
        while node >> level & 1 == 1 {
            add_to(&counter[level][..len], &mut carry[..len]);
            level += 1;
        }
        counter[level][..len].copy_from_slice(&carry[..len]);
    }
    let lowest = nodes.trailing_zeros() as usize;
    for level in lowest + 1..counter.len() {
        if nodes >> level & 1 == 1 {
            let (below, above) = counter.split_at_mut(level);
            add_to(&above[0][..len], &mut below[lowest][..len]);
        }
    }
    &counter[lowest][..len]
}

vectorized! {
    fn sum_of_squares[S, A: Real](x: &[A]) -> A {
        lanes::sum(x, |x| x * x)
    }

    fn are_finite[S, A: Real](x: &[A]) -> bool {
        // A finite number times 0 is 0, anything else is NaN.
        lanes::sum(x, |x| x * A::ZERO) == A::ZERO
    }

    fn add[S, A: Real](left: &[A], right: &[A], out: &mut [A]) {
        for ((out, &left), &right) in out.iter_mut().zip(left).zip(right) {
            *out = left + right;
        }
    }

    fn add_to[S, A: Real](left: &[A], right: &mut [A]) {
        for (right, &left) in right.iter_mut().zip(left) {
            *right = left + *right;
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;
    use sneppx_contract::{HostSlice, HostVec, Layout, Memory};

    use super::*;
    use crate::{Cpu, CpuOptions};

    #[test]
    fn clip_06_squares_of_f16_are_summed_in_f32() {
        let device = Cpu::new(CpuOptions { threads: Some(2) }).unwrap();
        let x = device.upload(HostSlice::F16(&[f16::from_f32(300.0); 64])).unwrap();
        let out = device.alloc(DType::F32, 1).unwrap();
        sums_of_squares(View::whole(&x), View::whole(&out)).unwrap();
        assert_eq!(device.download(&out).unwrap(), HostVec::F32(vec![5_760_000.0]));
    }

    #[test]
    fn one_number_that_is_not_finite_is_found_anywhere() {
        let device = Cpu::new(CpuOptions { threads: Some(2) }).unwrap();
        let out = device.alloc(DType::U8, 1).unwrap();
        let check = |values: &[f32], layout| {
            let x = device.upload(HostSlice::F32(values)).unwrap();
            all_finite(View::new(&x, layout), View::whole(&out)).unwrap();
            device.download(&out).unwrap() == HostVec::U8(vec![1])
        };
        let mut values = vec![f32::MAX; 10_000];
        assert!(check(&values, Layout::flat(0, 10_000)));
        for (at, bad) in [(0, f32::NAN), (4095, f32::INFINITY), (9_999, f32::NEG_INFINITY)] {
            let good = std::mem::replace(&mut values[at], bad);
            assert!(!check(&values, Layout::flat(0, 10_000)), "{bad} at {at}");
            assert!(!check(&values, Layout::strided(&[100, 100], &[1, 100], 0).unwrap()));
            values[at] = good;
        }
        assert!(check(&[], Layout::flat(0, 0)));
    }

    #[test]
    fn a_tree_joins_neighbours_level_by_level() {
        let device = Cpu::new(CpuOptions { threads: Some(2) }).unwrap();
        for count in 1..20usize {
            let value = |node: usize, at: usize| ((node * 31 + at * 7) as f32 * 0.37).sin() * 1e3;
            let hosts: Vec<Vec<f32>> =
                (0..count).map(|node| (0..1500).map(|at| value(node, at)).collect()).collect();
            let buffers: Vec<_> =
                hosts.iter().map(|host| device.upload(HostSlice::F32(host)).unwrap()).collect();
            let views: Vec<_> = buffers.iter().map(View::whole).collect();
            let out = device.alloc(DType::F32, 1500).unwrap();
            tree_sum(&views, View::whole(&out)).unwrap();
            let mut level = hosts;
            while level.len() > 1 {
                let join = |pair: &[Vec<f32>]| match pair {
                    [left, right] => left.iter().zip(right).map(|(a, b)| a + b).collect(),
                    _ => pair[0].clone(),
                };
                level = level.chunks(2).map(join).collect();
            }
            assert_eq!(device.download(&out).unwrap(), HostVec::F32(level.remove(0)), "{count}");
        }
    }
}
