//! The fused families: normalisation, rotation, cross entropy, attention, optimizer steps.

use crate::{
    AdamWStep, Attention, CrossEntropy, Norm, NormKind, Rotation, SgdStep, Visibility,
    check::AttentionDims,
};

/// What a normalisation gives.
#[derive(Clone, Debug)]
pub struct Normalized {
    /// Means of the rows, 0 for the root mean square.
    pub means: Vec<f64>,
    /// Reciprocal deviations of the rows.
    pub reciprocals: Vec<f64>,
    /// The result.
    pub out: Vec<f64>,
}

/// Normalises each row of `columns` elements.
pub fn normalize(
    norm: Norm,
    columns: usize,
    x: &[f64],
    weight: Option<&[f64]>,
    bias: Option<&[f64]>,
) -> Normalized {
    let mut result = Normalized { means: vec![], reciprocals: vec![], out: vec![] };
    for row in x.chunks(columns) {
        let mean = match norm.kind {
            NormKind::Layer => row.iter().sum::<f64>() / columns as f64,
            NormKind::Rms => 0.0,
        };
        let square = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / columns as f64;
        let reciprocal = 1.0 / (square + norm.epsilon).sqrt();
        for (column, x) in row.iter().enumerate() {
            let scale = weight.map_or(1.0, |weight| weight[column]);
            let shift = bias.map_or(0.0, |bias| bias[column]);
            result.out.push((x - mean) * reciprocal * scale + shift);
        }
        result.means.push(mean);
        result.reciprocals.push(reciprocal);
    }
    result
}

/// Gradients of [`normalize`]: of the input, the weight and the bias. `of` is what it gave.
pub fn normalize_backward(
    kind: NormKind,
    columns: usize,
    x: &[f64],
    weight: Option<&[f64]>,
    of: &Normalized,
    dy: &[f64],
) -> [Vec<f64>; 3] {
    let (mut dx, mut dweight, mut dbias) = (vec![], vec![0.0; columns], vec![0.0; columns]);
    let n = columns as f64;
    for (row, (x, dy)) in x.chunks(columns).zip(dy.chunks(columns)).enumerate() {
        let normal: Vec<f64> =
            x.iter().map(|x| (x - of.means[row]) * of.reciprocals[row]).collect();
        let g: Vec<f64> =
            (0..columns).map(|c| dy[c] * weight.map_or(1.0, |weight| weight[c])).collect();
        let mean_g = match kind {
            NormKind::Layer => g.iter().sum::<f64>() / n,
            NormKind::Rms => 0.0,
        };
        let along = g.iter().zip(&normal).map(|(g, x)| g * x).sum::<f64>() / n;
        for column in 0..columns {
            dx.push(of.reciprocals[row] * (g[column] - mean_g - normal[column] * along));
            dweight[column] += dy[column] * normal[column];
            dbias[column] += dy[column];
        }
    }
    [dx, dweight, dbias]
}

/// Rotates pairs of the halves of each row `[T, size]` by the angles of its position.
pub fn rotary(rotation: Rotation, size: usize, x: &[f64], cos: &[f64], sin: &[f64]) -> Vec<f64> {
    let (half, sign) = (size / 2, if rotation == Rotation::Forward { 1.0 } else { -1.0 });
    let mut out = vec![0.0; x.len()];
    let positions = cos.len() / half.max(1);
    for (row, x) in x.chunks(size.max(1)).enumerate() {
        for pair in 0..half {
            let angle = row % positions * half + pair;
            let (cos, sin) = (cos[angle], sign * sin[angle]);
            out[row * size + pair] = x[pair] * cos - x[half + pair] * sin;
            out[row * size + half + pair] = x[half + pair] * cos + x[pair] * sin;
        }
    }
    out
}

/// Losses and log-sum-exp of each row.
pub fn cross_entropy(
    spec: CrossEntropy,
    logits: &[f64],
    classes: usize,
    targets: &[i64],
) -> [Vec<f64>; 2] {
    let (mut losses, mut sums) = (vec![], vec![]);
    for (row, &target) in logits.chunks(classes).zip(targets) {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum = row.iter().map(|x| (x - largest).exp()).sum::<f64>().ln() + largest;
        let uniform = row.iter().map(|x| sum - x).sum::<f64>() / classes as f64;
        let e = spec.label_smoothing;
        losses.push(match target == spec.ignore_index {
            true => 0.0,
            false => (1.0 - e) * (sum - row[target as usize]) + e * uniform,
        });
        sums.push(sum);
    }
    [losses, sums]
}

/// The gradient of the logits of [`cross_entropy`].
pub fn cross_entropy_backward(
    spec: CrossEntropy,
    logits: &[f64],
    classes: usize,
    targets: &[i64],
    dlosses: &[f64],
) -> Vec<f64> {
    let sums = cross_entropy(spec, logits, classes, targets)[1].clone();
    let mut out = vec![];
    for (row, logits) in logits.chunks(classes).enumerate() {
        for (class, x) in logits.iter().enumerate() {
            let hit = f64::from(u8::from(class as i64 == targets[row]));
            let e = spec.label_smoothing;
            let slope = (x - sums[row]).exp() - (1.0 - e) * hit - e / classes as f64;
            out.push(if targets[row] == spec.ignore_index { 0.0 } else { dlosses[row] * slope });
        }
    }
    out
}

/// The operands of attention as row-major values.
#[derive(Clone, Debug)]
pub struct AttentionValues {
    /// The sizes.
    pub dims: AttentionDims,
    /// `[B, H, T, D]`
    pub q: Vec<f64>,
    /// `[B, G, S, D]`
    pub k: Vec<f64>,
    /// `[B, G, S, E]`
    pub v: Vec<f64>,
    /// `[B, H, T, S]`, 0 hides.
    pub mask: Option<Vec<f64>>,
}

impl AttentionValues {
    /// Start of the row of `k` and of `v` that key `key` has for `query`, counted over `[B, H, T]`.
    fn key_rows(&self, query: usize, key: usize) -> (usize, usize) {
        let dims = &self.dims;
        let (batch, head) = (query / dims.queries / dims.heads, query / dims.queries % dims.heads);
        let group = head / (dims.heads / dims.kv_heads);
        let row = (batch * dims.kv_heads + group) * dims.keys + key;
        (row * dims.head_size, row * dims.value_size)
    }

    /// Weights of the keys for a query, counted over `[B, H, T]`, and their log-sum-exp.
    fn weights(&self, spec: Attention, query: usize) -> (Vec<f64>, f64) {
        let dims = &self.dims;
        let row = &self.q[query * dims.head_size..][..dims.head_size];
        let score = |key: usize| {
            let sees_later = key + dims.queries > query % dims.queries + dims.keys;
            let hidden = self.mask.as_ref().is_some_and(|m| m[query * dims.keys + key] == 0.0);
            if hidden || (spec.visibility == Visibility::Causal && sees_later) {
                return f64::NEG_INFINITY;
            }
            let k = &self.k[self.key_rows(query, key).0..][..dims.head_size];
            spec.scale * row.iter().zip(k).map(|(q, k)| q * k).sum::<f64>()
        };
        let scores: Vec<f64> = (0..dims.keys).map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            return (vec![0.0; dims.keys], f64::NEG_INFINITY);
        }
        let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
        (scores.iter().map(|s| (s - largest).exp() / sum).collect(), largest + sum.ln())
    }

    fn query_count(&self) -> usize {
        self.dims.batch * self.dims.heads * self.dims.queries
    }

    /// The result and the log-sum-exp.
    pub fn forward(&self, spec: Attention) -> [Vec<f64>; 2] {
        let size = self.dims.value_size;
        let (mut out, mut sums) = (vec![0.0; self.query_count() * size], vec![]);
        for query in 0..self.query_count() {
            let (weights, sum) = self.weights(spec, query);
            for (key, weight) in weights.into_iter().enumerate() {
                let v = self.key_rows(query, key).1;
                for column in 0..size {
                    out[query * size + column] += weight * self.v[v + column];
                }
            }
            sums.push(sum);
        }
        [out, sums]
    }

    /// Gradients of `q`, `k` and `v` for the gradient `dout` of the result.
    pub fn backward(&self, spec: Attention, dout: &[f64]) -> [Vec<f64>; 3] {
        let (d, e) = (self.dims.head_size, self.dims.value_size);
        let mut dq = vec![0.0; self.q.len()];
        let mut dk = vec![0.0; self.k.len()];
        let mut dv = vec![0.0; self.v.len()];
        for query in 0..self.query_count() {
            let (weights, _) = self.weights(spec, query);
            let dout = &dout[query * e..][..e];
            let of_weight = |key: usize| {
                let v = &self.v[self.key_rows(query, key).1..][..e];
                v.iter().zip(dout).map(|(v, dout)| v * dout).sum::<f64>()
            };
            let along: f64 = weights.iter().enumerate().map(|(key, w)| w * of_weight(key)).sum();
            for (key, &weight) in weights.iter().enumerate() {
                let (k, v) = self.key_rows(query, key);
                let of_score = spec.scale * weight * (of_weight(key) - along);
                for column in 0..d {
                    dq[query * d + column] += of_score * self.k[k + column];
                    dk[k + column] += of_score * self.q[query * d + column];
                }
                for column in 0..e {
                    dv[v + column] += weight * dout[column];
                }
            }
        }
        [dq, dk, dv]
    }
}

/// One AdamW step on a parameter and its moments.
pub fn adamw(step: AdamWStep, p: &mut f64, gradient: f64, m: &mut f64, v: &mut f64) {
    let gradient = gradient * step.gradient_scale;
    *p -= step.learning_rate * step.weight_decay * *p;
    *m = step.beta1 * *m + (1.0 - step.beta1) * gradient;
    *v = step.beta2 * *v + (1.0 - step.beta2) * gradient * gradient;
    let m_hat = *m / (1.0 - step.beta1.powi(step.step as i32));
    let v_hat = *v / (1.0 - step.beta2.powi(step.step as i32));
    *p -= step.learning_rate * m_hat / (v_hat.sqrt() + step.epsilon);
}

/// One SGD step on a parameter and its buffer.
pub fn sgd(step: SgdStep, p: &mut f64, gradient: f64, buffer: &mut f64) {
    let gradient = gradient * step.gradient_scale + step.weight_decay * *p;
    if step.momentum == 0.0 {
        *p -= step.learning_rate * gradient;
        return;
    }
    *buffer = match step.step {
        1 => gradient,
        _ => step.momentum * *buffer + (1.0 - step.dampening) * gradient,
    };
    let direction = if step.nesterov { gradient + step.momentum * *buffer } else { *buffer };
    *p -= step.learning_rate * direction;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::conformance::placed::draw;

    fn numbers(seed: u64, count: usize) -> Vec<f64> {
        draw(DType::F64, seed, count, -1.0, 1.0)
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// `gradient` is that of `f` at `x`, by central differences.
    #[track_caller]
    fn check_gradient(x: &[f64], gradient: &[f64], f: impl Fn(&[f64]) -> f64) {
        const STEP: f64 = 1e-5;
        assert_eq!(x.len(), gradient.len());
        for (index, want) in gradient.iter().enumerate() {
            let moved = |step: f64| {
                let mut x = x.to_vec();
                x[index] += step;
                f(&x)
            };
            let got = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            assert!((got - want).abs() < 1e-7, "element {index}: {got} by differences, {want}");
        }
    }

    #[test]
    fn gradients_of_normalisations_are_those_of_differences() {
        for kind in [NormKind::Layer, NormKind::Rms] {
            let norm = Norm { kind, epsilon: 1e-3 };
            let (x, w, b, dy) = (numbers(1, 15), numbers(2, 5), numbers(3, 5), numbers(4, 15));
            let run = |x: &[f64], w: &[f64], b: &[f64]| normalize(norm, 5, x, Some(w), Some(b));
            let [dx, dw, db] = normalize_backward(kind, 5, &x, Some(&w), &run(&x, &w, &b), &dy);
            check_gradient(&x, &dx, |x| dot(&dy, &run(x, &w, &b).out));
            check_gradient(&w, &dw, |w| dot(&dy, &run(&x, w, &b).out));
            check_gradient(&b, &db, |b| dot(&dy, &run(&x, &w, b).out));
        }
    }

    #[test]
    fn gradients_of_cross_entropy_are_those_of_differences() {
        let spec = CrossEntropy { ignore_index: -1, label_smoothing: 0.2 };
        let (logits, dlosses) = (numbers(1, 12), numbers(2, 3));
        let targets = [2, -1, 0];
        let gradient = cross_entropy_backward(spec, &logits, 4, &targets, &dlosses);
        let loss = |logits: &[f64]| dot(&dlosses, &cross_entropy(spec, logits, 4, &targets)[0]);
        check_gradient(&logits, &gradient, loss);
    }

    #[test]
    fn gradients_of_attention_are_those_of_differences() {
        let dims = AttentionDims {
            batch: 2,
            heads: 4,
            kv_heads: 2,
            queries: 2,
            keys: 3,
            head_size: 3,
            value_size: 2,
        };
        let mask = Some((0..48).map(|i| f64::from(u8::from(i % 5 != 0))).collect());
        let (q, k, v) = (numbers(1, 48), numbers(2, 36), numbers(3, 24));
        let values = AttentionValues { dims, q, k, v, mask };
        let spec = Attention { scale: 0.7, visibility: Visibility::Causal };
        let dout = numbers(4, 32);
        let [dq, dk, dv] = values.backward(spec, &dout);
        let with = |change: &dyn Fn(&mut AttentionValues)| {
            let mut values = values.clone();
            change(&mut values);
            dot(&dout, &values.forward(spec)[0])
        };
        check_gradient(&values.q, &dq, |q| with(&|values| values.q = q.to_vec()));
        check_gradient(&values.k, &dk, |k| with(&|values| values.k = k.to_vec()));
        check_gradient(&values.v, &dv, |v| with(&|values| values.v = v.to_vec()));
    }

    #[test]
    fn rotating_back_undoes_a_rotation() {
        let angles = numbers(1, 6);
        let (cos, sin): (Vec<f64>, Vec<f64>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
        let x = numbers(2, 24);
        let turned = rotary(Rotation::Forward, 4, &x, &cos, &sin);
        let back = rotary(Rotation::Backward, 4, &turned, &cos, &sin);
        assert!(x.iter().zip(&back).all(|(x, back)| (x - back).abs() < 1e-14));
        assert!((dot(&x, &x) - dot(&turned, &turned)).abs() < 1e-13, "lengths are kept");
    }
}
