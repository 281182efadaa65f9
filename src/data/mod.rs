//! What a model reads, in host memory: no device, no tensor and no rank that is more than a number.
//!
//! Three questions are kept apart. *What is sample `i`?* A [`Dataset`] answers: [`TensorDataset`],
//! [`TokenDataset`], or one of your own. *Who reads which sample, and when?* A [`Sampler`] or the
//! [`GlobalBatchSampler`] answers, without state and without touching the data. *When is it
//! ready?* [`DataLoader`] and [`StepLoader`] answer: they read ahead on threads, hand out batches
//! in order, and remember how far they came in one number.
//!
//! Read in this order: [`host_tensor`] and [`dataset`] (samples and batches), [`tokens`] and
//! [`token_file`] (sequences for language models), [`tokenizer`] and [`text`] (where tokens come
//! from), [`corpus`] (a language with a known entropy), [`sampler`], [`distributed`] and
//! [`global_batch`] (orders), [`prefetch`] and [`loader`] (threads).

pub mod corpus;
pub mod dataset;
pub mod distributed;
pub mod global_batch;
pub mod host_tensor;
pub mod loader;
pub mod prefetch;
pub mod sampler;
pub mod step_loader;
pub mod text;
pub mod token_file;
mod token_header;
mod token_writer;
pub mod tokenizer;
pub mod tokens;
pub mod transform;

pub use corpus::Corpus;
pub use dataset::{Dataset, Draw, TensorDataset};
pub use distributed::{DistributedSampler, Tail};
pub use global_batch::{Dealing, GlobalBatch, GlobalBatchSampler, LastBatch, MicroBatchPlan};
pub use host_tensor::{Collate, HostTensor};
pub use loader::{Batches, DataLoader, LoaderOptions, LoaderState};
pub use prefetch::Prefetch;
pub use sampler::{Order, RandomSampler, Sampler, SequentialSampler};
pub use step_loader::{MicroBatch, Step, StepLoader, StepLoaderOptions};
pub use text::{load_text, split_text};
pub use token_file::{RawTokens, TokenFile};
pub use token_header::TokenWidth;
pub use token_writer::TokenFileWriter;
pub use tokenizer::{ByteTokenizer, CharTokenizer, SavedTokenizer, Tokenizer, tokenizer_for};
pub use tokens::{TokenBatch, TokenDataset, TokenSample, TokenStore};
pub use transform::Mapped;
