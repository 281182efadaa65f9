//! A device that wraps another and counts its calls: the contract can be implemented outside.
//!
//! Only the required methods are forwarded. Everything else (norms, attention, losses, optimizer
//! steps) comes from the contract's compositions, so a Transformer trains on this device at once;
//! forwarding more would make it faster, not more able.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sneppx::autograd::rules::CrossEntropyOptions;
use sneppx::contract::{
    BinaryOp, CompareOp, Distribution, HostSlice, HostVec, Kernels, Memory, MemoryStats, RandomKey,
    ReduceKind, Store, UnaryOp, ViewOf,
};
use sneppx::cpu::Cpu;
use sneppx::nn::{Builder, Module, Pass, Transformer, TransformerConfig};
use sneppx::optim::{AdamW, AdamWOptions, Optimizer};
use sneppx::{DType, Result, Tensor};

/// Counts kernel calls on the way to another device.
#[derive(Clone, Debug)]
struct Counting<K> {
    inner: K,
    calls: Arc<AtomicUsize>,
}

impl<K: Kernels> Memory for Counting<K> {
    type Buffer = K::Buffer;

    fn name(&self) -> String {
        format!("counting {}", self.inner.name())
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer> {
        self.inner.alloc(dtype, len)
    }
    fn upload(&self, host: HostSlice<'_>) -> Result<Self::Buffer> {
        self.inner.upload(host)
    }
    fn write(&self, host: HostSlice<'_>, buffer: &Self::Buffer, offset: usize) -> Result<()> {
        self.inner.write(host, buffer, offset)
    }
    fn read(&self, buffer: &Self::Buffer, range: Range<usize>) -> Result<HostVec> {
        self.inner.read(buffer, range)
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }
    fn memory(&self) -> MemoryStats {
        self.inner.memory()
    }
    fn reset_peak(&self) {
        self.inner.reset_peak();
    }
}

/// Forwards required kernels, counting each call.
macro_rules! counted {
    ($($name:ident($($argument:ident: $ty:ty),*);)*) => {
        impl<K: Kernels> Kernels for Counting<K> {
            $(
                fn $name(&self, $($argument: $ty),*) -> Result<()> {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    self.inner.$name($($argument),*)
                }
            )*
        }
    };
}

counted! {
    fill(value: f64, out: ViewOf<'_, Self>);
    copy(x: ViewOf<'_, Self>, out: ViewOf<'_, Self>);
    cast(x: ViewOf<'_, Self>, out: ViewOf<'_, Self>);
    scaled_add(alpha: f64, x: ViewOf<'_, Self>, beta: f64, out: ViewOf<'_, Self>);
    unary(op: UnaryOp, x: ViewOf<'_, Self>, out: ViewOf<'_, Self>);
    unary_backward(
        op: UnaryOp, x: ViewOf<'_, Self>, dy: ViewOf<'_, Self>, dx: ViewOf<'_, Self>
    );
    binary(op: BinaryOp, a: ViewOf<'_, Self>, b: ViewOf<'_, Self>, out: ViewOf<'_, Self>);
    compare(op: CompareOp, a: ViewOf<'_, Self>, b: ViewOf<'_, Self>, out: ViewOf<'_, Self>);
    select(
        condition: ViewOf<'_, Self>, a: ViewOf<'_, Self>, b: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>
    );
    reduce(kind: ReduceKind, x: ViewOf<'_, Self>, store: Store, out: ViewOf<'_, Self>);
    matmul(
        alpha: f64, a: ViewOf<'_, Self>, b: ViewOf<'_, Self>, beta: f64, out: ViewOf<'_, Self>
    );
    index_select(table: ViewOf<'_, Self>, indices: ViewOf<'_, Self>, out: ViewOf<'_, Self>);
    index_add(indices: ViewOf<'_, Self>, source: ViewOf<'_, Self>, out: ViewOf<'_, Self>);
    random(distribution: Distribution, key: RandomKey, offset: u64, out: ViewOf<'_, Self>);
}

fn main() -> Result<()> {
    let device = Counting { inner: Cpu::new(Default::default())?, calls: Arc::default() };
    let config = TransformerConfig::gpt2(16, 32, 2, 2, 64, 8);
    let model = Transformer::new(config, &Builder::new(&device, 1))?;
    let mut optimizer = AdamW::of(model.parameters(), AdamWOptions::default())?;
    let tokens: Vec<u32> = (0..32).map(|i| i * 5 % 16).collect();
    let inputs = Tensor::from_slice(&device, &tokens, &[4, 8])?;
    let next: Vec<u32> = tokens.iter().map(|token| (token + 5) % 16).collect();
    let targets = Tensor::from_slice(&device, &next, &[4, 8])?;
    let mut first = None;
    for step in 0..20 {
        let pass = Pass::training(1, step, 0);
        let losses = model.losses(&inputs, &targets, CrossEntropyOptions::default(), &pass)?;
        let loss = losses.mean_all()?;
        optimizer.zero_grad();
        loss.backward()?;
        optimizer.step()?;
        let value = loss.item()?;
        let first = *first.get_or_insert(value);
        let calls = device.calls.swap(0, Ordering::Relaxed);
        if step % 5 == 4 {
            println!("step {step}: loss {value:.4} after {first:.4}, {calls} kernel calls");
        }
        assert!(step < 10 || value < first, "the loss does not fall: {value} after {first}");
    }
    println!("{} trained a Transformer", device.name());
    Ok(())
}
