//! The loaders: order, ends of epochs, failures, resuming, and independence from threads.

use std::collections::BTreeSet;
use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering, mpsc};
use std::time::{Duration, Instant};

use sneppx::data::{
    DataLoader, Dataset, Dealing, DistributedSampler, GlobalBatchSampler, LastBatch, LoaderOptions,
    LoaderState, Mapped, Order, RandomSampler, Sampler, SequentialSampler, StepLoader,
    StepLoaderOptions, Tail,
};
use sneppx_contract::{Error, Result};

/// Sample `i` is `i`, unless it is the bad one.
#[derive(Clone)]
struct Numbers {
    len: usize,
    bad: Option<(usize, Fault)>,
    reads: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum Fault {
    Error,
    Panic,
}

fn numbers(len: usize) -> Numbers {
    Numbers { len, bad: None, reads: Arc::default() }
}

impl Dataset for Numbers {
    type Item = u64;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<u64> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        // Uneven, so that workers finish in another order than they began.
        std::thread::sleep(Duration::from_micros((index as u64 * 37) % 200));
        match self.bad {
            Some((bad, Fault::Error)) if bad == index => {
                Err(Error::data("records", format!("bad record {index}")))
            }
            Some((bad, Fault::Panic)) if bad == index => panic!("bad record {index}"),
            _ => Ok(index as u64),
        }
    }
}

fn options(batch_size: usize, drop_last: bool, workers: usize) -> LoaderOptions {
    LoaderOptions { batch_size, drop_last, workers, prefetch: 4 }
}
fn epoch(
    loader: &mut DataLoader<impl Dataset<Item = u64> + 'static, impl Sampler>,
) -> Vec<Vec<u64>> {
    loader.epoch_batches().map(Result::unwrap).collect()
}

/// Runs `action` on a thread of its own and fails if it takes longer than `seconds`.
fn within<T: Send + 'static>(seconds: u64, action: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let thread = std::thread::spawn(move || done.send(action()));
    let result = result.recv_timeout(Duration::from_secs(seconds)).expect("hangs or panicked");
    thread.join().unwrap().unwrap();
    result
}

#[test]
fn load_01_the_last_partial_batch() {
    for workers in [0, 2] {
        for (samples, drop_last, sizes) in [
            (10, false, &[4, 4, 2][..]),
            (10, true, &[4, 4]),
            (8, false, &[4, 4]),
            (8, true, &[4, 4]),
        ] {
            let sampler = SequentialSampler::new(samples).unwrap();
            let mut loader =
                DataLoader::new(numbers(samples), sampler, options(4, drop_last, workers)).unwrap();
            for _ in 0..2 {
                let batches = epoch(&mut loader);
                let found: Vec<_> = batches.iter().map(Vec::len).collect();
                assert_eq!((&found[..], loader.len()), (sizes, sizes.len()));
                let count = sizes.iter().sum::<usize>() as u64;
                assert!(batches.concat().into_iter().eq(0..count));
            }
        }
    }
}

#[test]
fn load_02_a_batch_larger_than_the_data_set() {
    let sampler = SequentialSampler::new(3).unwrap();
    let mut keep = DataLoader::new(numbers(3), sampler, options(8, false, 1)).unwrap();
    assert_eq!((keep.len(), epoch(&mut keep)), (1, vec![vec![0, 1, 2]]));
    let mut dropping = DataLoader::new(numbers(3), sampler, options(8, true, 1)).unwrap();
    assert_eq!((dropping.len(), dropping.is_empty()), (0, true));
    let text = dropping.next_batch().unwrap_err().to_string();
    assert!(text.contains("batch_size = 8") && text.contains('3'), "{text}");
}

#[test]
fn load_03_an_empty_data_set_is_an_error_at_once() {
    let start = Instant::now();
    for rank in 0..2 {
        for order in [Order::Sequential, Order::Shuffled { seed: 1 }] {
            let error = DistributedSampler::new(0, rank, 2, order, Tail::Pad).unwrap_err();
            assert!(error.to_string().contains("empty"), "{error}");
        }
        for workers in [0, 2] {
            let sampler = SequentialSampler::new(4).unwrap();
            let error = DataLoader::new(numbers(0), sampler, options(4, false, workers));
            let error = error.err().unwrap().to_string();
            assert!(error.contains("empty"), "{error}");
        }
    }
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn load_04_a_failing_sample_is_reported_at_its_batch_and_nothing_hangs() {
    for fault in [Fault::Error, Fault::Panic] {
        for workers in [0, 2] {
            let text = within(5, move || {
                let dataset = Numbers { bad: Some((6, fault)), ..numbers(16) };
                let sampler = SequentialSampler::new(16).unwrap();
                let mut loader =
                    DataLoader::new(dataset, sampler, options(4, false, workers)).unwrap();
                assert_eq!(loader.next_batch().unwrap().unwrap(), [0, 1, 2, 3]);
                let text = loader.next_batch().unwrap_err().to_string();
                assert_eq!(loader.state().samples_consumed, 4, "the bad batch is not consumed");
                let again = loader.next_batch().unwrap_err().to_string();
                assert_eq!(text, again, "asking again tries the same batch");
                assert_eq!(loader.epoch_batches().count(), 1, "an iterator ends at the error");
                drop(loader);
                text
            });
            assert!(text.contains("bad record 6") && text.contains("sample 6"), "{text}");
        }
    }
}

#[test]
fn load_04_dropping_a_loader_in_the_middle_joins_its_workers() {
    within(5, || {
        let dataset = numbers(1000);
        let reads = dataset.reads.clone();
        let sampler = SequentialSampler::new(1000).unwrap();
        let mut loader = DataLoader::new(dataset, sampler, options(4, false, 3)).unwrap();
        loader.next_batch().unwrap();
        drop(loader);
        let after_drop = reads.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(reads.load(Ordering::SeqCst), after_drop, "a worker is still reading");
        assert!(after_drop <= 4 * (1 + 4), "{after_drop} samples read, 1 + 4 batches allowed");
    });
}

#[test]
fn load_05_random_transforms_do_not_depend_on_the_workers() {
    let epochs = |workers, world_size| -> Vec<Vec<(u64, u64)>> {
        let mut epochs = vec![Vec::new(), Vec::new()];
        for rank in 0..world_size {
            let dataset = Mapped::new(numbers(40), 7, |sample, key| Ok((sample, key.number(0))));
            let order = Order::Shuffled { seed: 3 };
            let sampler = DistributedSampler::new(40, rank, world_size, order, Tail::Pad).unwrap();
            let mut loader = DataLoader::new(dataset, sampler, options(4, false, workers)).unwrap();
            for values in &mut epochs {
                for batch in loader.epoch_batches() {
                    let (samples, randoms) = batch.unwrap();
                    values.extend(samples.into_iter().zip(randoms));
                }
            }
        }
        epochs.iter_mut().for_each(|values| values.sort_unstable());
        epochs
    };
    let want = epochs(0, 1);
    for (workers, world_size) in [(1, 1), (4, 1), (0, 2), (1, 2), (4, 2)] {
        assert_eq!(epochs(workers, world_size), want, "{workers} workers, {world_size} ranks");
    }
    let distinct: BTreeSet<u64> = want.concat().into_iter().map(|(_, random)| random).collect();
    assert_eq!(distinct.len(), 80, "40 values in each of two epochs, all different");
}

#[test]
fn samp_02_padding_and_drop_last_together_lose_no_real_sample_twice() {
    let mut seen = Vec::new();
    for rank in 0..4 {
        let sampler = DistributedSampler::new(9, rank, 4, Order::Sequential, Tail::Pad).unwrap();
        let mut loader = DataLoader::new(numbers(9), sampler, options(2, true, 1)).unwrap();
        let batches = epoch(&mut loader);
        assert_eq!(batches.len(), 1);
        seen.extend(batches.concat());
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..8));
}

#[test]
fn samp_04_a_loader_advances_its_epochs_by_itself() {
    let sampler = RandomSampler::new(22, 7).unwrap();
    let mut loader = DataLoader::new(numbers(22), sampler, options(4, false, 2)).unwrap();
    let (first, second) = (epoch(&mut loader), epoch(&mut loader));
    assert_ne!(first, second);
    assert_eq!(loader.epoch(), 2);
    loader.set_epoch(1);
    assert_eq!(epoch(&mut loader), second);
}

/// Two samples per batch and rank of 24 shuffled ones, from `state` on.
fn resumed(
    rank: usize,
    world_size: usize,
    state: Option<LoaderState>,
) -> DataLoader<Numbers, DistributedSampler> {
    let order = Order::Shuffled { seed: 1 };
    let sampler = DistributedSampler::new(24, rank, world_size, order, Tail::Pad).unwrap();
    let mut loader = DataLoader::new(numbers(24), sampler, options(2, false, 1)).unwrap();
    if let Some(state) = state {
        loader.load_state(state).unwrap();
    }
    loader
}

#[test]
fn samp_07_resume_in_the_middle_of_an_epoch_at_the_same_and_another_world_size() {
    // Three steps of one batch, or two steps that accumulate two.
    for batches in [3, 4] {
        let mut loaders = [resumed(0, 2, None), resumed(1, 2, None)];
        let mut seen: Vec<u64> = Vec::new();
        for loader in &mut loaders {
            for _ in 0..batches {
                seen.extend(loader.next_batch().unwrap().unwrap());
            }
        }
        let state = loaders[0].state();
        assert_eq!(state, loaders[1].state());
        assert_eq!(state.samples_consumed, 4 * batches);
        let json = serde_json::to_string(&state).unwrap();
        let state: LoaderState = serde_json::from_str(&json).unwrap();
        // Of the 8 samples left after 16, 3 ranks would have to read one twice.
        let world_sizes = if batches == 3 { vec![2, 3, 1] } else { vec![2, 1] };
        for world_size in world_sizes {
            let mut all = seen.clone();
            for rank in 0..world_size {
                let mut loader = resumed(rank, world_size, Some(state));
                let rest = epoch(&mut loader);
                all.extend(rest.iter().flatten());
                assert_eq!(loader.epoch(), 1);
                if world_size == 2 {
                    let uninterrupted = epoch(&mut resumed(rank, 2, None));
                    assert_eq!(rest, uninterrupted[batches as usize..]);
                }
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..24), "{batches} batches, then {world_size} ranks");
        }
    }
}

#[test]
fn samp_07_a_state_at_the_end_of_an_epoch_resumes_in_the_next() {
    let mut loader = resumed(0, 1, None);
    for _ in 0..12 {
        loader.next_batch().unwrap().unwrap();
    }
    let mut next = resumed(0, 1, Some(loader.state()));
    assert!(loader.next_batch().unwrap().is_none());
    assert_eq!(loader.state(), next.state());
    assert_eq!(epoch(&mut next), epoch(&mut loader));
    assert_eq!(loader.epoch(), 2);
}

#[test]
fn a_state_of_other_data_or_another_seed_is_refused_with_both_values() {
    let mut loader = resumed(0, 1, None);
    let state = loader.state();
    let text = loader.load_state(LoaderState { samples: 25, ..state }).unwrap_err().to_string();
    assert!(text.contains("25") && text.contains("24"), "{text}");
    let text = loader.load_state(LoaderState { seed: Some(9), ..state }).unwrap_err().to_string();
    assert!(text.contains('9') && text.contains('1'), "{text}");
    let sampler = SequentialSampler::new(5).unwrap();
    let text = DataLoader::new(numbers(4), sampler, options(1, false, 0)).err().unwrap();
    assert!(text.to_string().contains('5') && text.to_string().contains('4'), "{text}");
    let sampler = SequentialSampler::new(4).unwrap();
    assert!(DataLoader::new(numbers(4), sampler, options(0, false, 0)).is_err());
}

fn steps(rank: usize, world_size: usize, dealing: Dealing, workers: usize) -> StepLoader<Numbers> {
    let order = Order::Shuffled { seed: 5 };
    let sampler = GlobalBatchSampler::new(50, 12, 2, order, LastBatch::CarryOver).unwrap();
    let options = StepLoaderOptions { rank, world_size, dealing, workers, prefetch: 2 };
    StepLoader::new(numbers(50), sampler, options).unwrap()
}

#[test]
fn micro_batches_are_the_same_at_every_world_size_and_dealing() {
    // (step, micro-batch, first sample) -> samples, over eight steps, which is almost two epochs.
    let table = |world_size, dealing, workers| {
        let mut table = Vec::new();
        for rank in 0..world_size {
            let mut loader = steps(rank, world_size, dealing, workers);
            for number in 1..=8u64 {
                let step = loader.next_step().unwrap();
                assert_eq!((step.samples, step.total_micro_batches), (12, 6));
                assert_eq!(step.samples_consumed, 12 * number);
                for micro in step.micro_batches {
                    assert_eq!(micro.samples, micro.batch.len());
                    table.push((number, micro.number, micro.first_sample, micro.batch));
                }
            }
        }
        table.sort();
        table
    };
    let want = table(1, Dealing::Contiguous, 0);
    assert_eq!(want.len(), 8 * 6);
    for world_size in [1, 2, 3, 4, 7] {
        for (dealing, workers) in [(Dealing::Contiguous, 1), (Dealing::RoundRobin, 3)] {
            assert_eq!(table(world_size, dealing, workers), want, "{world_size} ranks");
        }
    }
}

#[test]
fn seed_01_reading_elsewhere_changes_neither_order_nor_transforms() {
    let run = |evaluate: bool| {
        let mut loader = steps(0, 1, Dealing::Contiguous, 1);
        let first = loader.next_step().unwrap().micro_batches[0].batch.clone();
        if evaluate {
            let sampler = RandomSampler::new(50, 5).unwrap();
            let mut evaluation =
                DataLoader::new(numbers(50), sampler, options(8, false, 1)).unwrap();
            epoch(&mut evaluation);
        }
        (first, loader.next_step().unwrap().micro_batches[0].batch.clone())
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn samp_07_steps_resume_at_any_world_size() {
    let mut whole = steps(0, 1, Dealing::Contiguous, 0);
    let mut want = Vec::new();
    let mut saved = whole.state();
    for number in 0..6 {
        if number == 3 {
            saved = whole.state();
        }
        let step = whole.next_step().unwrap();
        if number >= 3 {
            want.extend(step.micro_batches.into_iter().flat_map(|micro| micro.batch));
        }
    }
    want.sort_unstable();
    for world_size in [1, 2, 3] {
        let mut got = Vec::new();
        for rank in 0..world_size {
            let mut loader = steps(rank, world_size, Dealing::RoundRobin, 1);
            loader.load_state(saved).unwrap();
            for _ in 3..6 {
                let step = loader.next_step().unwrap();
                got.extend(step.micro_batches.into_iter().flat_map(|micro| micro.batch));
            }
        }
        got.sort_unstable();
        assert_eq!(got, want, "{world_size} ranks");
    }
}

#[test]
fn load_04_a_failing_step_is_reported_and_retried() {
    within(5, || {
        let dataset = Numbers { bad: Some((7, Fault::Error)), ..numbers(20) };
        let last = LastBatch::CarryOver;
        let sampler = GlobalBatchSampler::new(20, 4, 2, Order::Sequential, last).unwrap();
        let mut loader = StepLoader::new(dataset, sampler, StepLoaderOptions::default()).unwrap();
        loader.next_step().unwrap();
        for _ in 0..2 {
            let text = loader.next_step().unwrap_err().to_string();
            assert!(text.contains("bad record 7") && text.contains("sample 7"), "{text}");
            assert_eq!(loader.state().samples_consumed, 4);
        }
    });
}

#[test]
fn a_damaged_count_is_an_error_and_not_a_panic() {
    let mut loader = steps(0, 1, Dealing::Contiguous, 1);
    let damaged = LoaderState { samples_consumed: u64::MAX, ..loader.state() };
    loader.load_state(damaged).unwrap();
    assert!(loader.next_step().unwrap_err().to_string().contains("samples_consumed"));
    let mut loader = resumed(0, 1, None);
    loader.load_state(LoaderState { samples_consumed: u64::MAX, ..loader.state() }).unwrap();
    loader.next_batch().unwrap();
}
