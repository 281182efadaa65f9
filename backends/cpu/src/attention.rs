//! Scaled dot-product attention in blocks: the scores of one block of queries against one block of
//! keys are all that exists at a time (Dao et al., 2022; Milakov and Gimelshein, 2018).
//!
//! A task is a block of queries of one head. It walks over the keys that its queries see and keeps
//! the running maximum, the running sum and the running output of each query; how work is cut
//! depends on sizes alone. Few queries, as in generation with a cache, go through dot products with
//! the keys as they lie, because turning the keys around would cost more than the product.

use sneppx_contract::{Attention, Result, View, Visibility, check};

use crate::CpuBuffer;
use crate::attention_blocks::{Grid, Heads, HeadsOut, KEYS, Mask, QUERIES, Scratch};
use crate::element::{Float, Number, Real, with_float};
use crate::lanes;
use crate::math::Math;
use crate::operands::{Operands, Output};
use crate::parallel::for_each_block;
use crate::products::{Matrix, Stairs, TILE, add_rows_seen, dots, padded, scores};
use crate::simd::vectorized;

type V<'a> = View<'a, CpuBuffer>;

const NAME: &str = "attention";

/// See [`Kernels::attention`](sneppx_contract::Kernels::attention).
pub(crate) fn attention(
    spec: Attention,
    q: V<'_>,
    k: V<'_>,
    v: V<'_>,
    mask: Option<V<'_>>,
    out: V<'_>,
    log_sum_exp: V<'_>,
) -> Result<()> {
    let dims = check::attention(q, k, v, mask, out, log_sum_exp)?;
    check::output(NAME, out)?;
    check::output(NAME, log_sum_exp)?;
    let views = Forward { q, k, v, mask, out, log_sum_exp };
    with_float!(NAME, q.dtype(), T => forward::<T>(Grid { spec, dims }, views))
}

/// The views of the forward pass.
#[derive(Clone, Copy)]
pub(crate) struct Forward<'a> {
    pub(crate) q: V<'a>,
    pub(crate) k: V<'a>,
    pub(crate) v: V<'a>,
    pub(crate) mask: Option<V<'a>>,
    pub(crate) out: V<'a>,
    pub(crate) log_sum_exp: V<'a>,
}

fn forward<T: Float<Acc: Math>>(grid: Grid, views: Forward<'_>) -> Result<()> {
    let operands = Operands::of(NAME);
    let task = Task::<T> {
        grid,
        out: HeadsOut(operands.output(views.out)?),
        log_sum_exp: operands.output(views.log_sum_exp)?,
        q: Heads(operands.input(views.q)?),
        k: Heads(operands.input(views.k)?),
        v: Heads(operands.input(views.v)?),
        mask: match views.mask {
            Some(mask) => Some(Mask(operands.input(mask)?)),
            None => None,
        },
    };
    let dims = grid.dims;
    let blocks = dims.queries.div_ceil(QUERIES);
    let count = dims.batch * dims.heads * blocks;
    let work = dims.queries * dims.keys * (dims.head_size + dims.value_size);
    // A few blocks share scratch memory; how many is a matter of sizes, too.
    let together = (count / 32).clamp(1, 8);
    for_each_block(count, together, dims.batch * dims.heads * work / 8, |range| {
        let mut scratch = ForwardScratch::new(grid);
        for index in range {
            let (head, block) = (index / blocks, index % blocks);
            task.block(head / dims.heads, head % dims.heads, block * QUERIES, &mut scratch);
        }
    });
    Ok(())
}

/// What one block of queries needs.
struct ForwardScratch<A> {
    q: Scratch<A>,
    keys: Scratch<A>,
    v: Scratch<A>,
    scores: Vec<A>,
    out: Vec<A>,
    max: Vec<A>,
    sum: Vec<A>,
}

impl<A: Real> ForwardScratch<A> {
    fn new(grid: Grid) -> Self {
        let rows = grid.dims.queries.min(QUERIES);
        ForwardScratch {
            q: Scratch::default(),
            keys: Scratch::default(),
            v: Scratch::default(),
            scores: vec![A::ZERO; rows * KEYS],
            out: vec![A::ZERO; rows * padded(grid.dims.value_size)],
            max: vec![A::ZERO; rows],
            sum: vec![A::ZERO; rows],
        }
    }
}

/// The operands of all tasks.
struct Task<'a, T: Float> {
    grid: Grid,
    q: Heads<'a, T>,
    k: Heads<'a, T>,
    v: Heads<'a, T>,
    mask: Option<Mask<'a>>,
    out: HeadsOut<'a, T>,
    log_sum_exp: Output<'a, T::Acc>,
}

impl<T: Float<Acc: Math>> Task<'_, T> {
    /// The block of queries from `first` on of one head.
    fn block(&self, batch: usize, head: usize, first: usize, s: &mut ForwardScratch<T::Acc>) {
        let (dims, scale) = (self.grid.dims, T::Acc::real(self.grid.spec.scale));
        let rows = QUERIES.min(dims.queries - first);
        let width = padded(dims.value_size);
        if self.grid.seen(first + rows - 1) == 0 {
            s.out.fill(T::Acc::ZERO);
        }
        s.max.fill(-T::Acc::INFINITY);
        s.sum.fill(T::Acc::ZERO);
        let few = rows < TILE;
        let q = match few {
            true => self.q.rows([batch, head], first, rows, &mut s.q),
            false => self.q.numbers([batch, head], first, rows, &mut s.q),
        };
        let kv = [batch, self.grid.kv_head(head)];
        for start in (0..self.grid.seen(first + rows - 1)).step_by(KEYS) {
            let keys = KEYS.min(dims.keys - start);
            let stairs = self.grid.stairs(first, start, keys);
            if few {
                let k = self.k.rows(kv, start, keys, &mut s.keys);
                for row in 0..rows {
                    let out = &mut s.scores[row * KEYS..][..stairs.at(row)];
                    dots(q.at_row(row), k, padded(dims.head_size), scale, out);
                }
            } else {
                let [k, _] = self.k.columns(kv, start, keys, &mut s.v, &mut s.keys);
                scores(q, k, rows, dims.head_size, scale, stairs, &mut s.scores, KEYS);
            }
            if let Some(mask) = &self.mask {
                mask.hide([batch, head], first, start, rows, stairs, &mut s.scores);
            }
            let state = (&mut s.max[..], &mut s.sum[..]);
            soften(&mut s.scores, rows, stairs, state, &mut s.out, width);
            let v = match few {
                true => self.v.rows(kv, start, keys, &mut s.v),
                false => self.v.packed(kv, start, keys, &mut s.v),
            };
            // SAFETY: scratch of this thread, as large as the sizes say.
            let weights = unsafe { Matrix::new(s.scores.as_ptr(), KEYS, 1) };
            add_rows_seen(weights, v, rows, stairs, width, start > 0, &mut s.out, width);
        }
        for row in 0..rows {
            let (sum, max) = (s.sum[row], s.max[row]);
            // A query that sees nothing has sum 0 and output 0.
            let factor = if sum == T::Acc::ZERO { sum } else { T::Acc::ONE / sum };
            let values = &mut s.out[row * width..][..dims.value_size];
            values.iter_mut().for_each(|value| *value *= factor);
            self.out.write_row([batch, head], first + row, values);
            let strides = self.log_sum_exp.layout().strides();
            let at = batch * strides[0] + head * strides[1] + (first + row) * strides[2];
            let log_sum = T::Acc::ln::<crate::simd::Baseline>(sum);
            let value = if sum == T::Acc::ZERO { -T::Acc::INFINITY } else { max + log_sum };
            // SAFETY: each task has queries of its own.
            unsafe { self.log_sum_exp.pointer().add(at).write(value) };
        }
    }
}

vectorized! {
    /// Turns the scores of one block into weights relative to the running maxima, and rescales
    /// what was summed up under the old ones.
    fn soften[S, A: Math](
        scores: &mut [A],
        rows: usize,
        stairs: Stairs,
        state: (&mut [A], &mut [A]),
        out: &mut [A],
        width: usize,
    ) {
        let (max, sum) = state;
        let mut top = [A::ZERO; QUERIES];
        // Three passes over the rows: what one row waits for, others fill. Whole lines, whatever is
        // seen of them: loops of a known length need no remainder.
        for (row, top) in top[..rows].iter_mut().enumerate() {
            let seen = stairs.at(row);
            let line = &mut scores[row * KEYS..][..KEYS];
            for (key, score) in line.iter_mut().enumerate() {
                *score = if key < seen { *score } else { -A::INFINITY };
            }
            let here = lanes::max(line);
            *top = if here > max[row] { here } else { max[row] };
        }
        for (row, &top) in top[..rows].iter().enumerate() {
            let line = &mut scores[row * KEYS..][..KEYS];
            if top == -A::INFINITY {
                // Nothing seen so far: the weights are 0, unless NaN asks to be seen.
                line.iter_mut().for_each(|x| *x = if *x == top { A::ZERO } else { *x });
            } else {
                line.iter_mut().for_each(|x| *x = A::exp::<S>(*x - top));
            }
        }
        for (row, &top) in top[..rows].iter().enumerate() {
            let total = lanes::sum(&scores[row * KEYS..][..KEYS], |x| x);
            if top != max[row] && sum[row] != A::ZERO {
                let factor = A::exp::<S>(max[row] - top);
                sum[row] *= factor;
                out[row * width..][..width].iter_mut().for_each(|x| *x *= factor);
            }
            sum[row] += total;
            max[row] = top;
        }
    }
}

/// The keys that a query sees, as a number of leading keys.
impl Grid {
    /// What query `query` sees.
    pub(crate) fn seen(&self, query: usize) -> usize {
        match self.spec.visibility {
            Visibility::All => self.dims.keys,
            Visibility::Causal => {
                (query + 1 + self.dims.keys).saturating_sub(self.dims.queries).min(self.dims.keys)
            }
        }
    }

    /// What the queries from `first` on see of the `keys` keys from `start` on.
    pub(crate) fn stairs(&self, first: usize, start: usize, keys: usize) -> Stairs {
        let base = match self.spec.visibility {
            Visibility::All => isize::MAX / 2,
            Visibility::Causal => {
                let shift = self.dims.keys as isize - self.dims.queries as isize;
                first as isize + 1 + shift - start as isize
            }
        };
        Stairs { base, limit: keys }
    }
}
