//! Matrix products through the gemm crate.
//!
//! # Threads
//! A product is cut into parts of its rows or columns, and a batch into its matrices; each part is
//! one call of gemm on one thread. The parts are dealt as threads become free, so that a thread
//! that the system delays does not hold up the others, and no operand is packed twice: a product
//! whose left operand must be packed is cut by rows, any other by columns.
//!
//! The bits do not depend on the cut. gemm adds the products of one element in an order that
//! depends on `K` alone as long as the matrix is neither tiny nor a vector, so parts that would be
//! are not made; and parts end at multiples of [`GRAIN`] or [`WIDE_GRAIN`], which the tiles of the
//! instruction set divide, so that an element is computed by the same tile code in any cut.
//!
//! # Floats of 16 bits
//! Operands are widened into scratch memory from the pool, multiplied in `f32`, and rounded once.

use gemm::Parallelism;
use sneppx_contract::check::{self, MatmulDims};
use sneppx_contract::{DType, Element, Layout, Memory, Result, Shape, View};

use crate::element::Real;
use crate::operands::{Input, Operands, Output};
use crate::parallel::{SERIAL_BELOW, for_each_index};
use crate::{Cpu, CpuBuffer, copy, simd};

/// Parts end at multiples of this many rows or columns; a multiple of the tile sides of gemm's
/// kernels (48, 24, 16, 12, 8, 6, 4).
const GRAIN: usize = 48;

/// The same along the rows of memory of the output, where gemm's AVX-512 tiles are 64 long: parts
/// that end elsewhere leave each tile row a remainder, which costs a tenth of the product's time.
const WIDE_GRAIN: usize = 64;

/// The smallest side of a part: larger than what gemm treats as tiny.
const SMALLEST_PART: usize = 2 * GRAIN;

/// Multiplications below which a product is not cut.
const SMALLEST_WORK: usize = 1 << 19;

/// Parts per thread.
const PARTS_PER_THREAD: usize = 2;

/// See [`Kernels::matmul`](sneppx_contract::Kernels::matmul).
pub(crate) fn matmul(
    device: &Cpu,
    alpha: f64,
    a: View<'_, CpuBuffer>,
    b: View<'_, CpuBuffer>,
    beta: f64,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    let dims = check::matmul(a, b, out)?;
    match out.dtype() {
        DType::F64 => native::<f64>(&dims, alpha, a, b, beta, out),
        DType::F32 => native::<f32>(&dims, alpha, a, b, beta, out),
        _ => widened(device, &dims, alpha, a, b, beta, out),
    }
}

fn native<T: Real>(
    dims: &MatmulDims,
    alpha: f64,
    a: View<'_, CpuBuffer>,
    b: View<'_, CpuBuffer>,
    beta: f64,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    let operands = Operands::of("matmul");
    let out = operands.output::<T>(out)?;
    let (a, b) = (operands.input::<T>(a)?, operands.input::<T>(b)?);
    if out.layout().numel() == 0 {
        return Ok(());
    }
    let plan = Plan::of(dims, a.layout(), b.layout(), out.layout())?;
    plan.run(T::real(alpha), a, b, T::real(beta), out);
    Ok(())
}

fn widened(
    device: &Cpu,
    dims: &MatmulDims,
    alpha: f64,
    a: View<'_, CpuBuffer>,
    b: View<'_, CpuBuffer>,
    beta: f64,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    // Claimed once as a whole, so that overlaps are found before anything is computed.
    match out.dtype() {
        DType::BF16 => claim::<half::bf16>(a, b, out)?,
        _ => claim::<half::f16>(a, b, out)?,
    }
    let (wide_a, a) = widen(device, a)?;
    let (wide_b, b) = widen(device, b)?;
    let product = device.alloc(DType::F32, out.numel())?;
    let whole = View::new(&product, Layout::contiguous(*out.layout.shape()));
    if beta != 0.0 {
        copy::cast(out, whole)?;
    }
    native::<f32>(dims, alpha, View::new(&wide_a, a), View::new(&wide_b, b), beta, whole)?;
    copy::cast(whole, out)
}

fn claim<T: Element>(
    a: View<'_, CpuBuffer>,
    b: View<'_, CpuBuffer>,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    let operands = Operands::of("matmul");
    operands.output::<T>(out)?;
    operands.input::<T>(a)?;
    operands.input::<T>(b)?;
    Ok(())
}

/// The operand in `f32`, in the order in which it lies in memory; what repeats is kept once.
fn widen(device: &Cpu, x: View<'_, CpuBuffer>) -> Result<(CpuBuffer, Layout)> {
    let mut once = x.layout;
    for axis in 0..once.ndim() {
        if once.strides()[axis] == 0 && once.shape()[axis] > 1 {
            once = once.narrow(axis, 0, 1)?;
        }
    }
    let mut order: Vec<usize> = (0..once.ndim()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(once.strides()[axis]));
    let mut back = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        back[from] = to;
    }
    let once = once.permute(&order)?;
    let wide = device.alloc(DType::F32, once.numel())?;
    let layout = Layout::contiguous(*once.shape());
    copy::cast(View::new(x.buffer, once), View::new(&wide, layout))?;
    Ok((wide, layout.permute(&back)?.broadcast_to(x.layout.shape())?))
}

/// How one operand lies: where each matrix of the batch begins, and the strides inside it.
struct Lay {
    batch: Layout,
    row: usize,
    column: usize,
}

impl Lay {
    fn of(layout: &Layout) -> Result<Self> {
        let lead = layout.ndim() - 2;
        let (shape, strides) = (layout.shape(), layout.strides());
        let batch = Layout::strided(&shape[..lead], &strides[..lead], 0)?;
        Ok(Lay { batch, row: strides[lead], column: strides[lead + 1] })
    }

    /// The stride of all leading dimensions and the rows taken as one, if they have one.
    fn stacked_rows(&self, rows: usize) -> Option<usize> {
        let sizes = [&self.batch.shape()[..], &[rows]].concat();
        let strides = [self.batch.strides(), &[self.row]].concat();
        let merged = Layout::strided(&sizes, &strides, 0).ok()?.coalesce();
        match merged.strides() {
            [] => Some(self.row),
            [stride] => Some(*stride),
            _ => None,
        }
    }
}

/// Sizes and strides of a batch of products.
struct Plan {
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    a: Lay,
    b: Lay,
    out: Lay,
}

/// One part of one product.
struct Part {
    matrix: usize,
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
}

impl Plan {
    fn of(dims: &MatmulDims, a: &Layout, b: &Layout, out: &Layout) -> Result<Self> {
        let &MatmulDims { batch, m, k, n } = dims;
        let (a, b, out) = (Lay::of(a)?, Lay::of(b)?, Lay::of(out)?);
        let mut plan = Plan { batch: batch.numel(), m, k, n, a, b, out };
        plan.stack_rows();
        Ok(plan)
    }

    /// A batch that shares its right operand is one product with more rows.
    fn stack_rows(&mut self) {
        let shared = self.b.batch.strides().iter().all(|&stride| stride == 0);
        if self.batch < 2 || !shared {
            return;
        }
        let (a, out) = (self.a.stacked_rows(self.m), self.out.stacked_rows(self.m));
        if let (Some(a), Some(out)) = (a, out) {
            self.m *= self.batch;
            self.batch = 1;
            (self.a.row, self.out.row) = (a, out);
            for lay in [&mut self.a, &mut self.b, &mut self.out] {
                lay.batch = Layout::contiguous(Shape::SCALAR);
            }
        }
    }

    /// Into how many parts each product is cut, and whether by rows.
    fn cut(&self) -> (usize, bool) {
        let threads = rayon::current_num_threads();
        let work = self.m.saturating_mul(self.n).saturating_mul(self.k);
        if threads == 1 || work < 2 * SMALLEST_WORK || self.m.min(self.n) < GRAIN {
            return (1, false);
        }
        let wanted = (PARTS_PER_THREAD * threads).div_ceil(self.batch).min(work / SMALLEST_WORK);
        let (rows, columns) = (self.m / SMALLEST_PART, self.n / SMALLEST_PART);
        // gemm packs an operand that is not contiguous along the rows of memory, for each call
        // anew: such an operand is better cut than shared by all parts.
        let packs_a_alone = self.a.column != 1 && self.b.column == 1;
        let (first, second) = if packs_a_alone { (rows, columns) } else { (columns, rows) };
        let enough = wanted.min(threads);
        let take_second = first < enough && second > first;
        let parts = if take_second { second } else { first };
        (parts.min(wanted).max(1), packs_a_alone != take_second)
    }

    /// What parts end at multiples of.
    fn grain(&self, by_rows: bool) -> usize {
        let step = if by_rows { self.out.row } else { self.out.column };
        let is_wide = step == 1 && simd::level().name() == "avx512";
        if is_wide { WIDE_GRAIN } else { GRAIN }
    }

    fn run<T: Real>(
        &self,
        alpha: T,
        a: Input<'_, T>,
        b: Input<'_, T>,
        beta: T,
        out: Output<'_, T>,
    ) {
        let (parts, by_rows) = self.cut();
        let size = if by_rows { self.m } else { self.n };
        let grain = self.grain(by_rows);
        let grains = size.div_ceil(grain);
        let border = |part: usize| size.min(grains * part / parts * grain);
        let work = self.batch.saturating_mul(self.m * self.n).saturating_mul(self.k.max(1));
        // A fused multiplication and addition takes a sixteenth of what `cost` counts.
        let cost = if parts > 1 { SERIAL_BELOW } else { work / 16 };
        for_each_index(self.batch * parts, cost, |task| {
            let (matrix, part) = (task / parts, task % parts);
            let cut = border(part)..border(part + 1);
            let (rows, columns) = if by_rows { (cut, 0..self.n) } else { (0..self.m, cut) };
            // SAFETY: parts are disjoint.
            unsafe { self.run_part(&Part { matrix, rows, columns }, alpha, a, b, beta, out) };
        });
    }

    /// # Safety
    /// No other thread touches this part of the output.
    unsafe fn run_part<T: Real>(
        &self,
        part: &Part,
        alpha: T,
        a: Input<'_, T>,
        b: Input<'_, T>,
        beta: T,
        out: Output<'_, T>,
    ) {
        let Part { matrix, rows, columns } = part;
        let a_at = self.a.batch.position(*matrix) + rows.start * self.a.row;
        let b_at = self.b.batch.position(*matrix) + columns.start * self.b.column;
        let out_at = self.out.batch.position(*matrix)
            + rows.start * self.out.row
            + columns.start * self.out.column;
        // SAFETY: the layouts were checked to lie inside their buffers, the output overlaps no
        // input, and this part of it belongs to this call. gemm names the factor of the output
        // alpha and that of the product beta, and does not read the output if told so. With K = 0
        // the inputs have no elements and are not read.
        unsafe {
            gemm::gemm(
                rows.len(),
                columns.len(),
                self.k,
                out.pointer().wrapping_add(out_at),
                self.out.column as isize,
                self.out.row as isize,
                beta != T::ZERO,
                a.pointer().wrapping_add(a_at),
                self.a.column as isize,
                self.a.row as isize,
                b.pointer().wrapping_add(b_at),
                self.b.column as isize,
                self.b.row as isize,
                beta,
                alpha,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(batch: &[usize], m: usize, k: usize, n: usize, b_shared: bool) -> Plan {
        let shape = |rows, columns| Shape::new(&[batch, &[rows, columns]].concat()).unwrap();
        let b = match b_shared {
            true => Layout::contiguous(Shape::new(&[k, n]).unwrap()).broadcast_to(&shape(k, n)),
            false => Ok(Layout::contiguous(shape(k, n))),
        };
        let dims = MatmulDims { batch: Shape::new(batch).unwrap(), m, k, n };
        let (a, out) = (Layout::contiguous(shape(m, k)), Layout::contiguous(shape(m, n)));
        Plan::of(&dims, &a, &b.unwrap(), &out).unwrap()
    }

    #[test]
    fn a_batch_with_one_right_operand_is_one_product() {
        let stacked = plan(&[2, 3], 4, 5, 6, true);
        assert_eq!((stacked.batch, stacked.m, stacked.a.row, stacked.out.row), (1, 24, 5, 6));
        let batched = plan(&[2, 3], 4, 5, 6, false);
        assert_eq!((batched.batch, batched.m), (6, 4));
    }

    #[test]
    fn small_products_and_vectors_are_not_cut() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        let parts = |m, k, n| pool.install(|| plan(&[], m, k, n, false).cut().0);
        assert_eq!(parts(64, 64, 64), 1);
        assert_eq!(parts(1, 4096, 4096), 1);
        assert_eq!(parts(2048, 256, 768), 8);
        assert_eq!(parts(2048, 256, 200), 8);
        assert_eq!(parts(2048, 256, 400), 4);
    }
}
