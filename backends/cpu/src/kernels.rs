//! The contract's kernel families on the CPU: one line each, the work is in the family's file.

use sneppx_contract::{
    Activation, AdamWStep, Attention, BinaryOp, CompareOp, CrossEntropy, Distribution, Kernels,
    Norm, NormOperands, RandomKey, ReduceKind, Result, Rotation, SgdStep, Store, UnaryOp, View,
};

use crate::{
    Cpu, CpuBuffer, attention, attention_backward, bias_activation, copy, dropout, elementwise,
    index, loss, matmul, norm, optim, random, reduce, rotary, softmax, sums, unary,
};

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

    // ---- fused families ------------------------------------------------------------------------

    fn dropout(
        &self,
        probability: f64,
        key: RandomKey,
        offset: u64,
        x: V<'_>,
        out: V<'_>,
    ) -> Result<()> {
        self.run(|| dropout::dropout(probability, key, offset, x, out))
    }

    fn softmax(&self, x: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| softmax::softmax(x, out))
    }

    fn softmax_backward(&self, y: V<'_>, dy: V<'_>, dx: V<'_>) -> Result<()> {
        self.run(|| softmax::softmax_backward(y, dy, dx))
    }

    fn normalize(
        &self,
        norm: Norm,
        operands: NormOperands<'_, CpuBuffer>,
        sum: Option<V<'_>>,
        statistics: V<'_>,
        out: V<'_>,
    ) -> Result<()> {
        self.run(|| norm::normalize(norm, operands, sum, statistics, out))
    }

    fn normalize_backward(
        &self,
        norm: Norm,
        sum: V<'_>,
        weight: Option<V<'_>>,
        statistics: V<'_>,
        dy: V<'_>,
        dsum: Option<V<'_>>,
        dx: V<'_>,
        dweight: Option<(V<'_>, Store)>,
        dbias: Option<(V<'_>, Store)>,
    ) -> Result<()> {
        self.run(|| {
            norm::normalize_backward(
                self, norm, sum, weight, statistics, dy, dsum, dx, dweight, dbias,
            )
        })
    }

    fn bias_activation(
        &self,
        activation: Option<Activation>,
        x: V<'_>,
        bias: Option<V<'_>>,
        out: V<'_>,
    ) -> Result<()> {
        self.run(|| bias_activation::bias_activation(activation, x, bias, out))
    }

    fn bias_activation_backward(
        &self,
        activation: Option<Activation>,
        x: V<'_>,
        bias: Option<V<'_>>,
        dy: V<'_>,
        dx: V<'_>,
        dbias: Option<(V<'_>, Store)>,
    ) -> Result<()> {
        self.run(|| {
            bias_activation::bias_activation_backward(self, activation, x, bias, dy, dx, dbias)
        })
    }

    fn gated_activation(
        &self,
        activation: Activation,
        gate: V<'_>,
        up: V<'_>,
        out: V<'_>,
    ) -> Result<()> {
        self.run(|| bias_activation::gated_activation(activation, gate, up, out))
    }

    fn gated_activation_backward(
        &self,
        activation: Activation,
        gate: V<'_>,
        up: V<'_>,
        dy: V<'_>,
        dgate: V<'_>,
        dup: V<'_>,
    ) -> Result<()> {
        self.run(|| {
            bias_activation::gated_activation_backward(activation, gate, up, dy, dgate, dup)
        })
    }

    fn rotary(
        &self,
        rotation: Rotation,
        x: V<'_>,
        cos: V<'_>,
        sin: V<'_>,
        out: V<'_>,
    ) -> Result<()> {
        self.run(|| rotary::rotary(rotation, x, cos, sin, out))
    }

    fn cross_entropy(
        &self,
        spec: CrossEntropy,
        logits: V<'_>,
        targets: V<'_>,
        losses: V<'_>,
        log_sum_exp: V<'_>,
    ) -> Result<()> {
        self.run(|| loss::cross_entropy(spec, logits, targets, losses, log_sum_exp))
    }

    fn cross_entropy_backward(
        &self,
        spec: CrossEntropy,
        logits: V<'_>,
        targets: V<'_>,
        log_sum_exp: V<'_>,
        dlosses: V<'_>,
        dlogits: V<'_>,
    ) -> Result<()> {
        self.run(|| {
            loss::cross_entropy_backward(spec, logits, targets, log_sum_exp, dlosses, dlogits)
        })
    }

    fn attention(
        &self,
        spec: Attention,
        q: V<'_>,
        k: V<'_>,
        v: V<'_>,
        mask: Option<V<'_>>,
        out: V<'_>,
        log_sum_exp: V<'_>,
    ) -> Result<()> {
        self.run(|| attention::attention(spec, q, k, v, mask, out, log_sum_exp))
    }

    fn attention_backward(
        &self,
        spec: Attention,
        q: V<'_>,
        k: V<'_>,
        v: V<'_>,
        mask: Option<V<'_>>,
        out: V<'_>,
        log_sum_exp: V<'_>,
        dout: V<'_>,
        dq: V<'_>,
        dk: V<'_>,
        dv: V<'_>,
    ) -> Result<()> {
        let inputs = attention::Forward { q, k, v, mask, out, log_sum_exp };
        self.run(|| attention_backward::attention_backward(spec, inputs, dout, dq, dk, dv))
    }

    fn adamw_step(
        &self,
        step: AdamWStep,
        param: V<'_>,
        grad: V<'_>,
        m: V<'_>,
        v: V<'_>,
    ) -> Result<()> {
        self.run(|| optim::adamw_step(step, param, grad, m, v))
    }

    fn sgd_step(
        &self,
        step: SgdStep,
        param: V<'_>,
        grad: V<'_>,
        momentum: Option<V<'_>>,
    ) -> Result<()> {
        self.run(|| optim::sgd_step(step, param, grad, momentum))
    }

    fn sums_of_squares(&self, x: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| sums::sums_of_squares(x, out))
    }

    fn all_finite(&self, x: V<'_>, out: V<'_>) -> Result<()> {
        self.run(|| sums::all_finite(x, out))
    }

    fn tree_sum(&self, nodes: &[V<'_>], out: V<'_>) -> Result<()> {
        self.run(|| sums::tree_sum(nodes, out))
    }
}
