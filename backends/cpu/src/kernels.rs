//! The contract's kernel families on the CPU: one line each, the work is in the family's file.

use sneppx_contract::{
    BinaryOp, CompareOp, Distribution, Kernels, RandomKey, ReduceKind, Result, Store, UnaryOp, View,
};

use crate::{Cpu, CpuBuffer};

type V<'a> = View<'a, CpuBuffer>;

impl Kernels for Cpu {
    fn fill(&self, value: f64, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn copy(&self, x: V<'_>, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn cast(&self, x: V<'_>, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn scaled_add(&self, alpha: f64, x: V<'_>, beta: f64, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn unary(&self, op: UnaryOp, x: V<'_>, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn unary_backward(&self, op: UnaryOp, x: V<'_>, dy: V<'_>, dx: V<'_>) -> Result<()> {
        todo!()
    }

    fn binary(&self, op: BinaryOp, a: V<'_>, b: V<'_>, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn compare(&self, op: CompareOp, a: V<'_>, b: V<'_>, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn select(&self, condition: V<'_>, a: V<'_>, b: V<'_>, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn reduce(&self, kind: ReduceKind, x: V<'_>, store: Store, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn matmul(&self, alpha: f64, a: V<'_>, b: V<'_>, beta: f64, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn index_select(&self, table: V<'_>, indices: V<'_>, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn index_add(&self, indices: V<'_>, source: V<'_>, out: V<'_>) -> Result<()> {
        todo!()
    }

    fn random(
        &self,
        distribution: Distribution,
        key: RandomKey,
        offset: u64,
        out: V<'_>,
    ) -> Result<()> {
        todo!()
    }

    // Fused families: each override goes here, next to the others of its file.
}
