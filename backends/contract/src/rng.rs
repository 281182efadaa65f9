//! Counter-based random numbers: the same numbers on every device, at any position, in any order.
//!
//! The generator is Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel Random
//! Numbers: As Easy as 1, 2, 3", SC 2011). A stream is named by a 64-bit [`RandomKey`]; element
//! `i` of a stream needs no state but `i`. Keys are derived from what the numbers are for, never
//! from rank, time or call order:
//!
//! ```
//! use sneppx_contract::rng::RandomKey;
//! let seed = RandomKey::from_seed(42);
//! let dropout = seed.with_text("dropout").with_number(7).with_text("blocks.0.mlp");
//! assert_eq!(dropout.word(1000), dropout.word(1000));
//! assert_ne!(dropout.word(1000), seed.word(1000));
//! ```

/// Names one stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomKey(u64);

impl RandomKey {
    /// The stream of a user's seed.
    pub fn from_seed(seed: u64) -> Self {
        RandomKey(mix(seed ^ 0x9E37_79B9_7F4A_7C15))
    }

    /// A stream of its own for `number`; `(a, b)` and `(b, a)` differ, and so do `(3, 1)` and
    /// `(4, 0)`.
    pub fn with_number(self, number: u64) -> Self {
        let (lo, hi) = (self.0 as u32, (self.0 >> 32) as u32);
        let words = philox([number as u32, (number >> 32) as u32, 0x6E75_6D62, 0], [lo, hi]);
        RandomKey(u64::from(words[0]) | u64::from(words[1]) << 32)
    }

    /// A stream of its own for `text`, as for the path of a parameter.
    pub fn with_text(self, text: &str) -> Self {
        // FNV-1a over the bytes, then one block of the generator: texts are short, and the block
        // spreads what the hash leaves close together.
        let mut hash = 0xCBF2_9CE4_8422_2325u64;
        for &byte in text.as_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        self.with_number(hash).with_number(text.len() as u64)
    }

    /// The two key words of the generator, low word first.
    pub fn words(self) -> [u32; 2] {
        [self.0 as u32, (self.0 >> 32) as u32]
    }

    /// The four random words of block `block`: elements `4 * block .. 4 * block + 4`.
    pub fn block(self, block: u64) -> [u32; 4] {
        philox([block as u32, (block >> 32) as u32, 0, 0], self.words())
    }

    /// The random word of element `index`.
    pub fn word(self, index: u64) -> u32 {
        self.block(index / 4)[(index % 4) as usize]
    }

    /// A random 64-bit number for element `index`.
    pub fn number(self, index: u64) -> u64 {
        let block = self.block(index / 2);
        let at = 2 * (index % 2) as usize;
        u64::from(block[at]) | u64::from(block[at + 1]) << 32
    }

    /// An unbiased number in `0..bound` for element `index`; `bound` must not be 0.
    pub fn below(self, index: u64, bound: u64) -> u64 {
        assert!(bound > 0, "random number below 0");
        // Lemire, "Fast Random Integer Generation in an Interval", 2019: reject the short tail.
        let tail = bound.wrapping_neg() % bound;
        for attempt in 0.. {
            let stream = if attempt == 0 { self } else { self.with_number(attempt) };
            let wide = u128::from(stream.number(index)) * u128::from(bound);
            if wide as u64 >= tail {
                return (wide >> 64) as u64;
            }
        }
        unreachable!("the loop above has no other exit")
    }

    /// A permutation of `0..len`, by Fisher and Yates.
    pub fn permutation(self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for last in (1..len).rev() {
            order.swap(last, self.below(last as u64, last as u64 + 1) as usize);
        }
        order
    }
}

/// Uniform in `[0, 1)` with 24 bits, exact in `f32`.
pub fn uniform(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Two independent standard normal numbers from two random words (Box and Muller, 1958).
///
/// Formed in `f64` so that every device that rounds its `f64` functions well gives the same `f32`.
pub fn normal_pair(first: u32, second: u32) -> [f32; 2] {
    // (0, 1]: the logarithm of 0 never happens.
    let radius = (-2.0 * ((f64::from(first) + 1.0) / 4_294_967_296.0).ln()).sqrt();
    let angle = std::f64::consts::TAU * (f64::from(second) / 4_294_967_296.0);
    [(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]
}

/// Ten rounds of Philox 4x32.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let left = u64::from(counter[0]) * u64::from(MULTIPLIER[0]);
        let right = u64::from(counter[2]) * u64::from(MULTIPLIER[1]);
        counter = [
            (right >> 32) as u32 ^ counter[1] ^ key[0],
            right as u32,
            (left >> 32) as u32 ^ counter[3] ^ key[1],
            left as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): small seeds end up far apart.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the Random123 library.
    #[test]
    fn philox_gives_the_published_numbers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]
        );
        assert_eq!(
            philox(
                [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
                [0xA409_3822, 0x299F_31D0]
            ),
            [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1]
        );
    }

    #[test]
    fn a_permutation_holds_every_index_once() {
        for len in [0, 1, 2, 3, 100] {
            let mut order = RandomKey::from_seed(5).permutation(len);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..len));
        }
    }

    #[test]
    fn small_bounds_are_unbiased() {
        let key = RandomKey::from_seed(1);
        let mut counts = [0usize; 3];
        for index in 0..30_000 {
            counts[key.below(index, 3) as usize] += 1;
        }
        for count in counts {
            assert!((9_600..10_400).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let key = RandomKey::from_seed(9);
        let draw = |i: u64| normal_pair(key.word(2 * i), key.word(2 * i + 1));
        let values: Vec<f64> = (0..50_000).flat_map(draw).map(f64::from).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
