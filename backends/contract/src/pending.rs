//! A started collective that owns its buffer until it is waited for.

use std::fmt;

use crate::Result;

/// What waits for a started operation and hands its value back.
type Finish<T> = Box<dyn FnOnce() -> Result<T> + Send>;

/// A started operation that owns what it works on.
///
/// While a buffer is in flight nobody else can name it: the collective took it, and only
/// [`Work::wait`] gives it back. Dropping a `Work` waits too, never panics, and leaves an error to
/// the next call on the communicator.
///
/// ```
/// use sneppx_contract::Work;
/// let work = Work::ready(5);
/// assert_eq!(work.wait()?, 5);
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[must_use = "dropping pending work waits for it and discards its result"]
pub struct Work<T> {
    finish: Option<Finish<T>>,
}

impl<T> Work<T> {
    /// An operation that is already done.
    pub fn ready(value: T) -> Self
    where
        T: Send + 'static,
    {
        Work::pending(move || Ok(value))
    }

    /// An operation in flight; `finish` blocks until it is done, within the group's deadline.
    pub fn pending(finish: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        Work { finish: Some(Box::new(finish)) }
    }

    /// Blocks until the operation is done and gives its value back.
    ///
    /// # Errors
    /// The operation's own error; [`Error::Peer`](crate::Error::Peer) at the deadline.
    pub fn wait(mut self) -> Result<T> {
        match self.finish.take() {
            Some(finish) => finish(),
            None => Err(crate::Error::Internal("work was waited for twice".into())),
        }
    }

    /// The operation followed by `next` on its value, when it is waited for.
    pub fn then<U>(mut self, next: impl FnOnce(T) -> Result<U> + Send + 'static) -> Work<U>
    where
        T: 'static,
    {
        let finish = self.finish.take();
        Work::pending(move || match finish {
            Some(finish) => next(finish()?),
            None => Err(crate::Error::Internal("work was waited for twice".into())),
        })
    }
}

impl<T> Drop for Work<T> {
    fn drop(&mut self) {
        if let Some(finish) = self.finish.take() {
            // The communicator keeps the error for its next call; there is nobody to tell here.
            drop(finish());
        }
    }
}

impl<T> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}
