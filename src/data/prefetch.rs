//! Work done ahead of time on threads, handed out in order.
//!
//! Workers take jobs from one iterator and never run more than a fixed number ahead of what was
//! handed out. Results wait until it is their turn, so the consumer sees one order however many
//! workers there are. A job that fails or panics gives an error in its place.

use std::any::Any;
use std::collections::BTreeMap;
use std::iter::{Enumerate, Fuse};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sneppx_contract::{Error, Result};

/// The results of a run of jobs, in order. Dropping it ends and joins the workers.
pub struct Prefetch<J, T> {
    shared: Arc<Shared<J, T>>,
    workers: Vec<JoinHandle<()>>,
}

impl<J: Send + 'static, T: Send + 'static> Prefetch<J, T> {
    /// Runs `work` on each of `jobs`: on `workers` threads, at most `ahead` (at least 1) jobs
    /// ahead of what was handed out, or, with 0 workers, when the result is asked for.
    ///
    /// # Errors
    /// The operating system gives no more threads.
    pub fn start(
        jobs: impl Iterator<Item = J> + Send + 'static,
        work: impl Fn(J) -> Result<T> + Send + Sync + 'static,
        workers: usize,
        ahead: usize,
    ) -> Result<Self> {
        let jobs: Box<dyn Iterator<Item = J> + Send> = Box::new(jobs);
        let shared = Arc::new(Shared {
            jobs: Mutex::new(jobs.fuse().enumerate()),
            work: Box::new(work),
            progress: Mutex::new(Progress {
                issued: 0,
                delivered: 0,
                total: None,
                ready: BTreeMap::new(),
                stop: false,
                alive: workers,
            }),
            changed: Condvar::new(),
            ahead: ahead.max(1),
        });
        let mut prefetch = Prefetch { shared, workers: Vec::new() };
        for number in 0..workers {
            let shared = prefetch.shared.clone();
            let thread = std::thread::Builder::new().name(format!("data worker {number}"));
            let started = thread.spawn(move || shared.run_worker()).map_err(|error| {
                let detail = format!("cannot start data worker {number} of {workers}: {error}");
                Error::Device { device: "host".into(), detail }
            })?;
            prefetch.workers.push(started);
        }
        Ok(prefetch)
    }
}

impl<J, T> Iterator for Prefetch<J, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.workers.is_empty() {
            let (_, job) = self.shared.next_job()?;
            return Some(self.shared.perform(job));
        }
        let mut progress = self.shared.lock();
        loop {
            let turn = progress.delivered;
            if let Some(result) = progress.ready.remove(&turn) {
                progress.delivered += 1;
                self.shared.changed.notify_all();
                return Some(result);
            }
            if progress.total.is_some_and(|total| turn >= total) {
                return None;
            }
            if progress.alive == 0 {
                progress.total = Some(turn);
                return Some(Err(Error::Internal("all data workers ended early".into())));
            }
            progress = wait(&self.shared.changed, progress);
        }
    }
}

impl<J, T> Drop for Prefetch<J, T> {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches what its job does; there is nothing left to report here.
            let _ = worker.join();
        }
    }
}

impl<J, T> std::fmt::Debug for Prefetch<J, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prefetch({} workers, {} ahead)", self.workers.len(), self.shared.ahead)
    }
}

/// Runs `action` and turns a panic into an error that holds its text.
pub(crate) fn without_panic<T>(action: impl FnOnce() -> Result<T>) -> Result<T> {
    // Nothing that `action` may have left half-changed is looked at afterwards but through its
    // own locks, which report it themselves.
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
        Err(Error::data("data set", format!("panicked: {}", panic_text(&*panic))))
    })
}

struct Shared<J, T> {
    jobs: Mutex<Enumerate<Fuse<Box<dyn Iterator<Item = J> + Send>>>>,
    work: Box<dyn Fn(J) -> Result<T> + Send + Sync>,
    progress: Mutex<Progress<T>>,
    changed: Condvar,
    ahead: usize,
}

struct Progress<T> {
    /// Jobs that workers took or are about to take.
    issued: usize,
    /// Results that were handed out.
    delivered: usize,
    /// How many jobs there are, once the last was taken.
    total: Option<usize>,
    /// Results whose turn has not come.
    ready: BTreeMap<usize, Result<T>>,
    stop: bool,
    alive: usize,
}

impl<J, T> Shared<J, T> {
    fn run_worker(&self) {
        let _leaving = Leaving(self);
        while self.wait_for_permit() {
            let Some((turn, job)) = self.next_job() else {
                let mut progress = self.lock();
                progress.issued -= 1;
                progress.total = Some(progress.issued.min(progress.total.unwrap_or(usize::MAX)));
                return;
            };
            let result = self.perform(job);
            self.lock().ready.insert(turn, result);
            self.changed.notify_all();
        }
    }

    /// Waits until one more job may be taken; false when there is nothing more to do.
    fn wait_for_permit(&self) -> bool {
        let mut progress = self.lock();
        loop {
            if progress.stop || progress.total.is_some() {
                return false;
            }
            if progress.issued < progress.delivered + self.ahead {
                progress.issued += 1;
                return true;
            }
            progress = wait(&self.changed, progress);
        }
    }

    fn next_job(&self) -> Option<(usize, J)> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    fn perform(&self, job: J) -> Result<T> {
        without_panic(|| (self.work)(job))
    }

    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a worker out however it ends, and wakes whoever waits for it.
struct Leaving<'a, J, T>(&'a Shared<J, T>);

impl<J, T> Drop for Leaving<'_, J, T> {
    fn drop(&mut self) {
        self.0.lock().alive -= 1;
        self.0.changed.notify_all();
    }
}

fn wait<'a, P>(changed: &Condvar, guard: MutexGuard<'a, P>) -> MutexGuard<'a, P> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
