//! Work done ahead on threads.

use std::time::Duration;

use sneppx::data::Prefetch;

#[test]
fn prefetched_results_come_in_order_and_end() {
    for (workers, ahead) in [(0, 0), (1, 1), (3, 2), (4, 16)] {
        let work = |job: u64| {
            std::thread::sleep(Duration::from_micros(job * 53 % 300));
            Ok(job * 2)
        };
        let mut results = Prefetch::start(0..100, work, workers, ahead).unwrap();
        let got: Vec<u64> = results.by_ref().map(Result::unwrap).collect();
        assert!(got.into_iter().eq((0..100).map(|job| job * 2)), "{workers} workers");
        assert!(results.next().is_none() && results.next().is_none());
    }
}
