//! Text from a trained model, one token at a time.

use sneppx_contract::{Device, Error, RandomKey, Result};

use super::{KeyValueCache, Transformer};
use crate::autograd::no_grad;
use crate::tensor::Tensor;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 always takes the likeliest token (the first of equals).
    pub temperature: f64,
    /// Choose among this many of the likeliest.
    pub top_k: Option<usize>,
    /// Choose among the likeliest that together have this probability (Holtzman et al., 2020).
    pub top_p: f64,
    /// Where random numbers come from.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 1.0, top_k: None, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// The token chosen from `logits` with a uniform number `draw` in `[0, 1)`.
    ///
    /// # Errors
    /// No logits, or one that is NaN.
    pub fn choose(&self, logits: &[f64], draw: f64) -> Result<usize> {
        if logits.is_empty() || logits.iter().any(|logit| logit.is_nan()) {
            let reason = "a token cannot be chosen from no logits or from NaN";
            return Err(Error::invalid("logits", logits.len(), reason));
        }
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        if self.temperature == 0.0 {
            return Ok(order[0]);
        }
        order.truncate(self.top_k.unwrap_or(usize::MAX).max(1));
        let largest = logits[order[0]];
        let weight = |&token: &usize| ((logits[token] - largest) / self.temperature).exp();
        let mut weights: Vec<f64> = order.iter().map(weight).collect();
        let nucleus = self.top_p * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        let kept = weights.iter().take_while(|&&weight| {
            let before = sum;
            sum += weight;
            before < nucleus
        });
        let kept = kept.count().max(1);
        weights.truncate(kept);
        let mut left = draw * weights.iter().sum::<f64>();
        for (&token, weight) in order.iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return Ok(token);
            }
        }
        // Rounding can leave the last sliver over.
        Ok(order[kept - 1])
    }

    fn validate(&self) -> Result<()> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            let reason = "must be 0 or positive, and finite";
            return Err(Error::invalid("temperature", self.temperature, reason));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(Error::invalid("top-p", self.top_p, "must lie in 0 < p <= 1"));
        }
        if self.top_k == Some(0) {
            return Err(Error::invalid("top-k", 0, "must be at least 1"));
        }
        Ok(())
    }
}

/// An endless continuation of a prompt.
///
/// Positions seen before are kept as keys and values. Where the model has no positions left, the
/// older half of the text is forgotten and the rest read again.
#[derive(Debug)]
pub struct Generator<'m, D: Device> {
    model: &'m Transformer<D>,
    cache: KeyValueCache<D>,
    sampling: Sampling,
    /// What the model has in view.
    context: Vec<u32>,
    /// How many of those the cache holds.
    read: usize,
    drawn: u64,
}

impl<'m, D: Device> Generator<'m, D> {
    /// A continuation of `prompt`.
    ///
    /// # Errors
    /// An empty prompt; a way of choosing that makes no sense; out of memory.
    pub fn new(model: &'m Transformer<D>, prompt: &[u32], sampling: Sampling) -> Result<Self> {
        sampling.validate()?;
        if prompt.is_empty() {
            let reason = "the model continues a text; give at least one token";
            return Err(Error::invalid("prompt", "\"\"", reason));
        }
        let device = model.embedding.weight.leaf().value()?.device().clone();
        let cache = KeyValueCache::new(&device, model.dtype(), model.config(), 1)?;
        // A longer prompt counts with its end, as the text itself will.
        let start = prompt.len().saturating_sub(model.config().max_seq_len);
        let context = prompt[start..].to_vec();
        Ok(Generator { model, cache, sampling, context, read: 0, drawn: 0 })
    }

    fn next_token(&mut self) -> Result<u32> {
        let limit = self.model.config().max_seq_len;
        if self.context.len() > limit {
            self.context.drain(..self.context.len() - limit.div_ceil(2));
            self.cache.clear();
            self.read = 0;
        }
        let new = &self.context[self.read..];
        let device = self.model.embedding.weight.leaf().value()?.device().clone();
        let tokens = Tensor::from_slice(&device, new, &[1, new.len()])?;
        let logits = no_grad(|| self.model.forward_cached(&tokens, &mut self.cache))?;
        self.read = self.context.len();
        let last = logits.slice(1, logits.dim(1)? - 1, 1)?.to_host()?.to_f64();
        let key = RandomKey::from_seed(self.sampling.seed).with_text("generation");
        let draw = key.number(self.drawn) as f64 / 2f64.powi(64);
        self.drawn += 1;
        let token = self.sampling.choose(&last, draw.min(1.0 - f64::EPSILON))? as u32;
        self.context.push(token);
        Ok(token)
    }
}

impl<D: Device> Iterator for Generator<'_, D> {
    type Item = Result<u32>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_token())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f64; 4] = [1.0, 3.0, 2.0, 3.0];

    #[test]
    fn temperature_zero_takes_the_first_of_the_likeliest() {
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        assert_eq!(greedy.choose(&LOGITS, 0.99).unwrap(), 1);
    }

    #[test]
    fn top_k_and_top_p_leave_out_the_rest() {
        let two = Sampling { top_k: Some(2), ..Sampling::default() };
        let half = Sampling { top_p: 0.5, ..Sampling::default() };
        for sampling in [two, half] {
            let chosen: Vec<_> =
                (0..100).map(|i| sampling.choose(&LOGITS, f64::from(i) / 100.0).unwrap()).collect();
            assert!(chosen.iter().all(|token| [1, 3].contains(token)), "{sampling:?} {chosen:?}");
            assert!(chosen.contains(&1) && chosen.contains(&3));
        }
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let sampling = Sampling::default();
        let total: f64 = LOGITS.iter().map(|logit| logit.exp()).sum();
        let mut counts = [0usize; 4];
        for i in 0..10_000 {
            counts[sampling.choose(&LOGITS, (f64::from(i) + 0.5) / 10_000.0).unwrap()] += 1;
        }
        for (count, logit) in counts.iter().zip(LOGITS) {
            assert!((*count as f64 - 10_000.0 * logit.exp() / total).abs() < 2.0, "{counts:?}");
        }
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let good = Sampling::default();
        for bad in [
            Sampling { temperature: -1.0, ..good },
            Sampling { temperature: f64::NAN, ..good },
            Sampling { top_p: 0.0, ..good },
            Sampling { top_p: 1.5, ..good },
            Sampling { top_k: Some(0), ..good },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
        assert!(good.choose(&[f64::NAN], 0.0).is_err());
    }
}
