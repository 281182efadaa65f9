//! The derivative of attention. Weights are formed again, block by block, from the log-sum-exp.
//!
//! A task is one key and value head of one sequence, with all query heads that use it: nobody else
//! adds to the gradients of its keys and values, and blocks follow one another in a fixed order.
//! With weights `p`, `dp = dout·vᵀ` and `delta = sum(dout * out)`, the scores' gradient is
//! `ds = p * (dp - delta) * scale`; then `dv = pᵀ·dout`, `dk = dsᵀ·q` and `dq = ds·k`.

use sneppx_contract::{Attention, Error, Result, View, check};

use crate::CpuBuffer;
use crate::attention::Forward;
use crate::attention_blocks::{Grid, Heads, HeadsOut, KEYS, Mask, QUERIES, Scratch};
use crate::element::{Float, Number, Real, with_float};
use crate::math::Math;
use crate::operands::{Input, Operands};
use crate::parallel::for_each_block;
use crate::products::{Matrix, Stairs, add_columns_seen, add_rows_seen, padded, scores};
use crate::simd::vectorized;

type V<'a> = View<'a, CpuBuffer>;

const NAME: &str = "attention_backward";

/// See [`Kernels::attention_backward`](sneppx_contract::Kernels::attention_backward).
pub(crate) fn attention_backward(
    spec: Attention,
    inputs: Forward<'_>,
    dout: V<'_>,
    dq: V<'_>,
    dk: V<'_>,
    dv: V<'_>,
) -> Result<()> {
    let Forward { q, k, v, mask, out, log_sum_exp } = inputs;
    let dims = check::attention(q, k, v, mask, out, log_sum_exp)?;
    for (like, gradient) in [(out, dout), (q, dq), (k, dk), (v, dv)] {
        check::dtype(NAME, gradient, q.dtype())?;
        if like.layout.shape() != gradient.layout.shape() {
            let shapes = (like.layout.shape(), gradient.layout.shape());
            return Err(Error::shapes_differ(NAME, "operand", shapes.0, "gradient", shapes.1));
        }
    }
    check::fits(NAME, dout)?;
    for gradient in [dq, dk, dv] {
        check::output(NAME, gradient)?;
    }
    let grid = Grid { spec, dims };
    with_float!(NAME, q.dtype(), T => backward::<T>(grid, inputs, dout, [dq, dk, dv]))
}

fn backward<T: Float<Acc: Math>>(
    grid: Grid,
    inputs: Forward<'_>,
    dout: V<'_>,
    gradients: [V<'_>; 3],
) -> Result<()> {
    let operands = Operands::of(NAME);
    let [dq, dk, dv] = gradients;
    let task = Task::<T> {
        grid,
        dq: HeadsOut(operands.output(dq)?),
        dk: HeadsOut(operands.output(dk)?),
        dv: HeadsOut(operands.output(dv)?),
        q: Heads(operands.input(inputs.q)?),
        k: Heads(operands.input(inputs.k)?),
        v: Heads(operands.input(inputs.v)?),
        out: Heads(operands.input(inputs.out)?),
        dout: Heads(operands.input(dout)?),
        log_sum_exp: operands.input(inputs.log_sum_exp)?,
        mask: match inputs.mask {
            Some(mask) => Some(Mask(operands.input(mask)?)),
            None => None,
        },
    };
    let dims = grid.dims;
    let work = dims.queries * dims.keys * (dims.head_size + dims.value_size);
    let count = dims.batch * dims.kv_heads;
    // A few heads share scratch memory; how many is a matter of sizes.
    let together = (count / 32).clamp(1, 8);
    for_each_block(count, together, dims.batch * dims.heads * work / 4, |range| {
        let mut scratch = BackwardScratch::new(grid);
        for index in range {
            task.head(index / dims.kv_heads, index % dims.kv_heads, &mut scratch);
        }
    });
    Ok(())
}

/// The operands of all tasks.
struct Task<'a, T: Float> {
    grid: Grid,
    q: Heads<'a, T>,
    k: Heads<'a, T>,
    v: Heads<'a, T>,
    mask: Option<Mask<'a>>,
    out: Heads<'a, T>,
    log_sum_exp: Input<'a, T::Acc>,
    dout: Heads<'a, T>,
    dq: HeadsOut<'a, T>,
    dk: HeadsOut<'a, T>,
    dv: HeadsOut<'a, T>,
}

/// What one task needs.
struct BackwardScratch<A> {
    k_columns: Scratch<A>,
    v_columns: Scratch<A>,
    k_rows: Scratch<A>,
    q_rows: Scratch<A>,
    dout_rows: Scratch<A>,
    weights: Vec<A>,
    dscores: Vec<A>,
    dk: Vec<A>,
    dv: Vec<A>,
    /// The gradients of all queries of the task, row by row.
    dq: Vec<A>,
    /// `sum(dout * out)` and the log-sum-exp of all queries of the task.
    rows: Vec<(A, A)>,
}

impl<A: Real> BackwardScratch<A> {
    fn new(grid: Grid) -> Self {
        let dims = grid.dims;
        let queries = dims.heads / dims.kv_heads * dims.queries;
        let zeros = |len| vec![A::ZERO; len];
        let (rows, keys) = (dims.queries.min(QUERIES), dims.keys.min(KEYS));
        BackwardScratch {
            k_columns: Scratch::default(),
            v_columns: Scratch::default(),
            k_rows: Scratch::default(),
            q_rows: Scratch::default(),
            dout_rows: Scratch::default(),
            weights: zeros(rows * KEYS),
            dscores: zeros(rows * KEYS),
            dk: zeros(keys * padded(dims.head_size)),
            dv: zeros(keys * padded(dims.value_size)),
            dq: zeros(queries * padded(dims.head_size)),
            rows: Vec::with_capacity(queries),
        }
    }
}

impl<T: Float<Acc: Math>> Task<'_, T> {
    /// All gradients of one key and value head and its query heads.
    fn head(&self, batch: usize, kv_head: usize, scratch: &mut BackwardScratch<T::Acc>) {
        let dims = self.grid.dims;
        let shared = dims.heads / dims.kv_heads;
        let heads = kv_head * shared..(kv_head + 1) * shared;
        scratch.rows.clear();
        if dims.keys == 0 {
            scratch.dq.fill(T::Acc::ZERO);
        }
        self.read_rows(batch, heads.clone(), &mut scratch.rows);
        for start in (0..dims.keys).step_by(KEYS) {
            let keys = KEYS.min(dims.keys - start);
            let mut summed = false;
            let s = &mut *scratch;
            let kv = [batch, kv_head];
            let [v_columns, _] = self.v.columns(kv, start, keys, &mut s.q_rows, &mut s.v_columns);
            let [k_columns, k_rows] =
                self.k.columns(kv, start, keys, &mut s.k_rows, &mut s.k_columns);
            for (index, head) in heads.clone().enumerate() {
                for first in (0..dims.queries).step_by(QUERIES) {
                    let rows = QUERIES.min(dims.queries - first);
                    let at = index * dims.queries + first;
                    if self.grid.seen(first + rows - 1) <= start {
                        if start == 0 {
                            let width = padded(dims.head_size);
                            s.dq[at * width..(at + rows) * width].fill(T::Acc::ZERO);
                        }
                        continue;
                    }
                    let block = Block {
                        head: [batch, head],
                        first,
                        rows,
                        start,
                        stairs: self.grid.stairs(first, start, keys),
                        at,
                        add: summed,
                    };
                    self.block(block, [k_columns, v_columns, k_rows], s);
                    summed = true;
                }
            }
            if !summed {
                scratch.dk.fill(T::Acc::ZERO);
                scratch.dv.fill(T::Acc::ZERO);
            }
            let (k_width, v_width) = (padded(dims.head_size), padded(dims.value_size));
            for key in 0..keys {
                let (dk, dv) = (&scratch.dk[key * k_width..], &scratch.dv[key * v_width..]);
                self.dk.write_row([batch, kv_head], start + key, &dk[..dims.head_size]);
                self.dv.write_row([batch, kv_head], start + key, &dv[..dims.value_size]);
            }
        }
        let width = padded(dims.head_size);
        for (index, head) in heads.enumerate() {
            for query in 0..dims.queries {
                let dq = &scratch.dq[(index * dims.queries + query) * width..];
                self.dq.write_row([batch, head], query, &dq[..dims.head_size]);
            }
        }
    }

    /// `sum(dout * out)` and the log-sum-exp of every query of the heads.
    fn read_rows(
        &self,
        batch: usize,
        heads: std::ops::Range<usize>,
        rows: &mut Vec<(T::Acc, T::Acc)>,
    ) {
        let strides = self.log_sum_exp.layout().strides();
        let (mut out, mut dout) = (Scratch::default(), Scratch::default());
        for head in heads {
            for query in 0..self.grid.dims.queries {
                let at = batch * strides[0] + head * strides[1] + query * strides[2];
                // SAFETY: the element exists.
                let log_sum_exp = unsafe { self.log_sum_exp.pointer().add(at).read() };
                let out = self.out.row([batch, head], query, &mut out);
                let dout = self.dout.row([batch, head], query, &mut dout);
                rows.push((product_sum(out, dout), log_sum_exp));
            }
        }
    }

    /// One block of queries against one block of keys.
    fn block(
        &self,
        block: Block,
        [k_columns, v_columns, k_rows]: [Matrix<T::Acc>; 3],
        s: &mut BackwardScratch<T::Acc>,
    ) {
        let dims = self.grid.dims;
        let Block { head, first, rows, start, stairs, at, add } = block;
        let scale = T::Acc::real(self.grid.spec.scale);
        let (k_width, v_width) = (padded(dims.head_size), padded(dims.value_size));
        let q = self.q.packed(head, first, rows, &mut s.q_rows);
        let dout = self.dout.packed(head, first, rows, &mut s.dout_rows);
        scores(q, k_columns, rows, dims.head_size, scale, stairs, &mut s.weights, KEYS);
        if let Some(mask) = &self.mask {
            mask.hide(head, first, start, rows, stairs, &mut s.weights);
        }
        let one = T::Acc::ONE;
        scores(dout, v_columns, rows, dims.value_size, one, stairs, &mut s.dscores, KEYS);
        let known = &s.rows[at..at + rows];
        derive_scores(known, stairs, scale, &mut s.weights, &mut s.dscores);
        // SAFETY: scratch of this thread, as large as the sizes say; the products below write
        // other scratch.
        let (weights, dscores) = unsafe {
            (Matrix::new(s.weights.as_ptr(), KEYS, 1), Matrix::new(s.dscores.as_ptr(), KEYS, 1))
        };
        add_columns_seen(weights, dout, rows, stairs, v_width, add, &mut s.dv, v_width);
        add_columns_seen(dscores, q, rows, stairs, k_width, add, &mut s.dk, k_width);
        let dq = &mut s.dq[at * k_width..];
        add_rows_seen(dscores, k_rows, rows, stairs, k_width, start > 0, dq, k_width);
    }
}

/// A block of queries against a block of keys.
struct Block {
    head: [usize; 2],
    first: usize,
    rows: usize,
    start: usize,
    stairs: Stairs,
    /// The number of the first query among those of the task.
    at: usize,
    /// Whether the gradients of these keys have a part already.
    add: bool,
}

vectorized! {
    fn product_sum[S, A: Real](x: &[A], y: &[A]) -> A {
        let [sum] = crate::lanes::sums([x, y], |[x, y]| [x * y]);
        sum
    }

    /// Turns scores into weights, and gradients of weights into gradients of scores.
    fn derive_scores[S, A: Math](
        known: &[(A, A)],
        stairs: Stairs,
        scale: A,
        weights: &mut [A],
        dscores: &mut [A],
    ) {
        for (row, &(delta, log_sum_exp)) in known.iter().enumerate() {
            let (seen, width) = (stairs.at(row), stairs.tile(row));
            let weights = &mut weights[row * KEYS..][..width];
            let dscores = &mut dscores[row * KEYS..][..width];
            for (weight, dscore) in weights.iter_mut().zip(dscores.iter_mut()) {
                // A query that sees nothing has the log-sum-exp -inf; what is hidden weighs 0.
                let hidden = *weight == -A::INFINITY;
                let value = A::exp::<S>(*weight - log_sum_exp);
                *weight = if hidden { A::ZERO } else { value };
                *dscore = *weight * (*dscore - delta) * scale;
            }
            weights[seen..].fill(A::ZERO);
            dscores[seen..].fill(A::ZERO);
        }
    }
}
