//! The contract's kernel families on the CPU: one line each, the work is in the family's file.

use sneppx_contract::{
    BinaryOp, CompareOp, Distribution, Kernels, RandomKey, ReduceKind, Result, Store, UnaryOp, View,
};

use crate::{Cpu, CpuBuffer, copy, elementwise, index, matmul, random, reduce, unary};

type V<'a> = View<'a, CpuBuffer>;

impl Kernels for Cpu {
    fn fill(&self, value: f64, out: V<'_>) -> Result<()> {
        self.run(|| copy::fill(value, out))
    }

    fn copy(&self, x: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| copy::copy(x, out))
    }

    fn cast(&self, x: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| copy::cast(x, out))
    }

    fn scaled_add(&self, alpha: f64, x: V<'_>, beta: f64, out: V<'_>) -> Result<()> {
        self.run(|| elementwise::scaled_add(alpha, x, beta, out))
    }

    fn unary(&self, op: UnaryOp, x: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| unary::unary(op, x, out))
    }

    fn unary_backward(&self, op: UnaryOp, x: V<'_>, dy: V<'_>, dx: V<'_>) -> Result<()> {
        self.run(|| unary::unary_backward(op, x, dy, dx))
    }

    fn binary(&self, op: BinaryOp, a: V<'_>, b: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| elementwise::binary(op, a, b, out))
    }

    fn compare(&self, op: CompareOp, a: V<'_>, b: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| elementwise::compare(op, a, b, out))
    }

    fn select(&self, condition: V<'_>, a: V<'_>, b: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| elementwise::select(condition, a, b, out))
    }

    fn reduce(&self, kind: ReduceKind, x: V<'_>, store: Store, out: V<'_>) -> Result<()> {
        self.run(|| reduce::reduce(kind, x, store, out))
    }

    fn matmul(&self, alpha: f64, a: V<'_>, b: V<'_>, beta: f64, out: V<'_>) -> Result<()> {
        self.run(|| matmul::matmul(self, alpha, a, b, beta, out))
    }

    fn index_select(&self, table: V<'_>, indices: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| index::index_select(table, indices, out))
    }

    fn index_add(&self, indices: V<'_>, source: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| index::index_add(indices, source, out))
    }

    fn random(
        &self,
        distribution: Distribution,
        key: RandomKey,
        offset: u64,
        out: V<'_>,
    ) -> Result<()> {
        self.run(|| random::random(distribution, key, offset, out))
    }

    // Fused families: each override goes here, next to the others of its file.
}
