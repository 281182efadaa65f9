//! The built-in corpus: its entropy is what it says, and it needs more than the last token.

use std::collections::HashMap;

use sneppx::data::corpus::{KEEP, LINE};
use sneppx::data::{Corpus, Tokenizer};

/// Mean of -ln p over the tokens that have a whole line before them.
fn cross_entropy(corpus: &Corpus, tokens: &[u32]) -> f64 {
    let loss = |at: usize| {
        let probabilities = corpus.conditional(&tokens[..at]).unwrap();
        -probabilities[tokens[at] as usize].ln()
    };
    let places = LINE..tokens.len();
    places.clone().map(loss).sum::<f64>() / places.len() as f64
}

/// The entropy of a token given the `order` tokens before it, from counts.
fn entropy_given_last(tokens: &[u32], order: usize) -> f64 {
    let mut contexts: HashMap<&[u32], HashMap<u32, usize>> = HashMap::new();
    for window in tokens.windows(order + 1) {
        let counts = contexts.entry(&window[..order]).or_default();
        *counts.entry(window[order]).or_insert(0) += 1;
    }
    let total = (tokens.len() - order) as f64;
    let of_context = |counts: &HashMap<u32, usize>| {
        let sum = counts.values().sum::<usize>() as f64;
        counts.values().map(|&n| -(n as f64) * (n as f64 / sum).ln()).sum::<f64>()
    };
    contexts.values().map(of_context).sum::<f64>() / total
}

#[test]
fn the_generator_has_the_entropy_that_is_stated() {
    for seed in [1, 2] {
        let corpus = Corpus::new(seed);
        let stated = corpus.entropy_per_token();
        let found = cross_entropy(&corpus, &corpus.generate(0, 100_000));
        // The standard deviation of -ln p is below 1.2, so this is four of the mean.
        assert!((found - stated).abs() < 0.015, "stated {stated}, found {found}");
        assert!((0.95..1.0).contains(&stated));
    }
}

#[test]
fn a_conditional_distribution_sums_to_one_and_has_the_stated_entropy() {
    let corpus = Corpus::new(3);
    let tokens = corpus.generate(0, 10 * LINE);
    let mut total = 0.0;
    for at in LINE..2 * LINE {
        let probabilities = corpus.conditional(&tokens[..at]).unwrap();
        assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        total -= probabilities.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum::<f64>();
    }
    assert!((total / LINE as f64 - corpus.entropy_per_token()).abs() < 1e-12);
}

#[test]
fn structure_at_several_distances_is_real() {
    let corpus = Corpus::new(1);
    let tokens = corpus.generate(0, 400_000);
    let floor = corpus.entropy_per_token();
    let by_order: Vec<f64> = (0..4).map(|order| entropy_given_last(&tokens, order)).collect();
    let [none, one, two, three] = by_order[..] else { unreachable!() };
    assert!(none > one + 0.5, "the last token tells something: {by_order:?}");
    assert!(one > two + 0.1, "the one before it too: {by_order:?}");
    assert!(two > three, "{by_order:?}");
    assert!(three > floor + 0.15, "the rest is further back: {by_order:?}, floor {floor}");
}

/// -ln P(tokens), all places of the first and everything before it summed over.
fn surprise_of_window(corpus: &Corpus, tokenizer: &dyn Tokenizer, window: &[u32]) -> f64 {
    let sum = (0..LINE).map(|place| probability_at(corpus, tokenizer, place, window)).sum::<f64>();
    -(sum / LINE as f64).ln()
}

/// P(window | place of its first token), by brute force over what was cut off.
fn probability_at(corpus: &Corpus, tokenizer: &dyn Tokenizer, place: usize, window: &[u32]) -> f64 {
    // Words that are cut off whole tell nothing: any will do.
    let line = tokenizer.encode("Abaca-baca baca-baca\n").unwrap();
    let word_start = if place == 0 { 1 } else { 1 + (place - 1) / 5 * 5 };
    let hidden_values = |at: usize, first: u32, size: u32| {
        // The onset and the vowel of a cut word matter as long as its coda is to come.
        let depends = place > at && (at == 0 || place <= word_start + 2);
        if depends { (first..first + size).collect() } else { vec![u32::MAX] }
    };
    let mut total = 0.0;
    for capital in hidden_values(0, 0, 6) {
        for onset in hidden_values(word_start, 6, 10) {
            for vowel in hidden_values(word_start + 1, 16, 6) {
                let mut text = line[..place].to_vec();
                let mut prior = 1.0;
                for (at, value) in [(0, capital), (word_start, onset), (word_start + 1, vowel)] {
                    if value != u32::MAX {
                        // The end of a line before it, for a context that reaches far enough.
                        let before = [&line[..], &text[..at]].concat();
                        prior *= corpus.conditional(&before).unwrap()[value as usize];
                        text[at] = value;
                    }
                }
                total += prior * probability_after(corpus, &[&line[..], &text].concat(), window);
            }
        }
    }
    total
}

fn probability_after(corpus: &Corpus, before: &[u32], window: &[u32]) -> f64 {
    let mut text = before.to_vec();
    let mut probability = 1.0;
    for &token in window {
        probability *= corpus.conditional(&text).unwrap()[token as usize];
        if probability == 0.0 {
            return 0.0;
        }
        text.push(token);
    }
    probability
}

#[test]
fn the_floor_of_a_window_is_what_the_best_predictor_reaches() {
    let (corpus, tokenizer) = (Corpus::new(1), Corpus::tokenizer());
    let seq_len = 24;
    let tokens = corpus.generate(0, 2_000 * LINE);
    let surprise = |window: &[u32]| surprise_of_window(&corpus, &tokenizer, window);
    // 64 and 21 have no common divisor, so all places of a line come up equally often.
    let starts: Vec<usize> = (0..30 * LINE).map(|i| i * 64 % (1_990 * LINE)).collect();
    let of_targets = |&start: &usize| {
        surprise(&tokens[start..start + seq_len + 1]) - surprise(&tokens[start..start + 1])
    };
    let found = starts.iter().map(of_targets).sum::<f64>() / (starts.len() * seq_len) as f64;
    let stated = corpus.entropy_in_window(seq_len).unwrap();
    assert!((found - stated).abs() < 0.03, "stated {stated}, found {found}");
    assert!(stated > corpus.entropy_per_token() + 0.08, "{stated}");
}

#[test]
fn longer_windows_come_closer_to_the_floor() {
    let corpus = Corpus::new(1);
    let floor = |seq_len| corpus.entropy_in_window(seq_len).unwrap() - corpus.entropy_per_token();
    let excess: Vec<f64> = [20, 64, 128, 256, 4096].map(floor).into();
    assert!(excess.is_sorted_by(|a, b| a > b), "{excess:?}");
    assert!(excess[4] > 0.0 && excess[2] < 0.04 && excess[1] < 0.07, "{excess:?}");
    assert!(corpus.entropy_in_window(19).unwrap_err().to_string().contains("19"));
}

#[test]
fn texts_are_a_function_of_seed_and_number() {
    let corpus = Corpus::new(5);
    let text = corpus.generate(0, 500);
    assert_eq!(Corpus::new(5).generate(0, 300), text[..300]);
    assert_ne!(corpus.generate(1, 500), text);
    assert_ne!(Corpus::new(6).generate(0, 500), text);
    let printed = Corpus::tokenizer().decode(&text).unwrap();
    assert_eq!(Corpus::tokenizer().encode(&printed).unwrap(), text);
    assert_eq!(Corpus::tokenizer().vocab_size(), Corpus::VOCAB_SIZE);
    assert!(printed.lines().take(20).all(|line| line.len() == LINE - 1), "{printed}");
    assert!(KEEP.iter().all(|keep| (0.5..1.0).contains(keep)));
}

#[test]
fn a_context_of_another_language_is_refused() {
    let corpus = Corpus::new(1);
    let refusal = |text: &str| {
        let tokens = Corpus::tokenizer().encode(text).unwrap();
        corpus.conditional(&tokens).unwrap_err().to_string()
    };
    assert!(refusal("beca").contains("no capital"));
    assert!(refusal("").contains("no capital"));
    assert!(refusal("Abb").contains("2 after a capital"));
}
