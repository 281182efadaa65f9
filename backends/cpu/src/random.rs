//! Random numbers, bit for bit those of the contract's generator.

use sneppx_contract::{Distribution, Element, RandomKey, Result, View, check, rng};

use crate::CpuBuffer;
use crate::blocks::BLOCK;
use crate::element::with_float;
use crate::map::{Cost, generate};
use crate::operands::Operands;
use crate::simd::vectorized;

/// Blocks of the generator that are computed side by side.
const SIDE_BY_SIDE: usize = 16;

/// See [`Kernels::random`](sneppx_contract::Kernels::random).
pub(crate) fn random(
    distribution: Distribution,
    key: RandomKey,
    offset: u64,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    const NAME: &str = "random";
    check::output(NAME, out)?;
    check::float(NAME, out)?;
    with_float!(NAME, out.dtype(), T => {
        let operands = Operands::of(NAME);
        let out = operands.output::<T>(out)?;
        generate(out, Cost::Function, |start, out| {
            draw(distribution, key, offset.wrapping_add(start as u64), out);
        })
    })
}

/// The random words of elements `first..first + words.len()` of stream `key`.
pub(crate) fn words(key: RandomKey, first: u64, words: &mut [u32]) {
    let lead = words.len().min((4 - first as usize % 4) % 4);
    let (head, rest) = words.split_at_mut(lead);
    for (index, word) in (first..).zip(head) {
        *word = key.word(index);
    }
    fill_words(key.words(), first.wrapping_add(lead as u64) / 4, rest);
}

fn draw<T: Element>(distribution: Distribution, key: RandomKey, first: u64, out: &mut [T]) {
    // A pair of normal numbers may begin one element before the run and end one after it.
    let mut buffer = [0; BLOCK + 2];
    match distribution {
        Distribution::Uniform { low, high } => {
            let buffer = &mut buffer[..out.len()];
            words(key, first, buffer);
            for (out, &mut word) in out.iter_mut().zip(buffer) {
                *out = T::from_f64(low + (high - low) * f64::from(rng::uniform(word)));
            }
        }
        Distribution::Normal { mean, deviation } => {
            let lead = (first % 2) as usize;
            let buffer = &mut buffer[..(lead + out.len()).next_multiple_of(2)];
            words(key, first - lead as u64, buffer);
            let pairs = buffer.chunks_exact(2).flat_map(|pair| rng::normal_pair(pair[0], pair[1]));
            for (out, z) in out.iter_mut().zip(pairs.skip(lead)) {
                *out = T::from_f64(mean + deviation * f64::from(z));
            }
        }
    }
}

vectorized! {
    /// The words of generator blocks from number `block` on.
    fn fill_words[S](key: [u32; 2], block: u64, out: &mut [u32]) {
        let mut block = block;
        for out in out.chunks_mut(4 * SIDE_BY_SIDE) {
            let lanes = philox_side_by_side(key, block);
            block = block.wrapping_add(SIDE_BY_SIDE as u64);
            for (index, out) in out.iter_mut().enumerate() {
                *out = lanes[index % 4][index / 4];
            }
        }
    }
}

/// Philox 4x32-10 of [`SIDE_BY_SIDE`] consecutive counters: word `w` of block `b` is `[w][b]`.
#[inline(always)]
fn philox_side_by_side(key: [u32; 2], block: u64) -> [[u32; SIDE_BY_SIDE]; 4] {
    const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let mut counter = [[0; SIDE_BY_SIDE]; 4];
    let number = |lane| block.wrapping_add(lane as u64);
    counter[0] = std::array::from_fn(|lane| number(lane) as u32);
    counter[1] = std::array::from_fn(|lane| (number(lane) >> 32) as u32);
    let mut key = key;
    for _ in 0..10 {
        let mut next = [[0; SIDE_BY_SIDE]; 4];
        for lane in 0..SIDE_BY_SIDE {
            let left = u64::from(counter[0][lane]) * u64::from(MULTIPLIER[0]);
            let right = u64::from(counter[2][lane]) * u64::from(MULTIPLIER[1]);
            next[0][lane] = (right >> 32) as u32 ^ counter[1][lane] ^ key[0];
            next[1][lane] = right as u32;
            next[2][lane] = (left >> 32) as u32 ^ counter[3][lane] ^ key[1];
            next[3][lane] = left as u32;
        }
        counter = next;
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_contract_at_any_position() {
        let key = RandomKey::from_seed(11);
        for first in [0, 1, 2, 3, 4, 61, (1 << 34) - 5] {
            for len in [0, 1, 3, 4, 63, 64, 65, 300] {
                let mut got = vec![0; len];
                words(key, first, &mut got);
                let want: Vec<u32> = (first..first + len as u64).map(|i| key.word(i)).collect();
                assert_eq!(got, want, "{first} {len}");
            }
        }
    }

    #[test]
    fn normal_numbers_come_in_the_pairs_of_the_contract() {
        let key = RandomKey::from_seed(3);
        let normal = Distribution::Normal { mean: 1.0, deviation: 2.0 };
        for first in [0, 1, 6, 7] {
            let mut got = [0f32; 9];
            draw(normal, key, first, &mut got);
            for (index, got) in (first..).zip(got) {
                let pair = 2 * (index / 2);
                let z = rng::normal_pair(key.word(pair), key.word(pair + 1))[index as usize % 2];
                assert_eq!(got, (1.0 + 2.0 * f64::from(z)) as f32);
            }
        }
    }
}
