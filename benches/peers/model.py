"""A GPT-2-like model in plain PyTorch: the same arithmetic as Sneppx's GPT-2 family.

Pre-norm blocks, learned positions, tanh GELU, causal attention, output head tied to the token
embedding. Letters in shape comments: B batch, T positions, C width, H heads, V vocabulary.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    """Everything that decides how much work a step is."""

    vocab_size: int
    dim: int
    num_heads: int
    num_layers: int
    ffn_dim: int
    seq_len: int
    batch: int
    bias: bool = True


class Norm(nn.Module):
    """Layer norm whose bias can be left out."""

    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.dim))
        self.bias = nn.Parameter(torch.zeros(shape.dim)) if shape.bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Block(nn.Module):
    """Attention and feed-forward network, each behind a norm and beside a residual."""

    def __init__(self, shape):
        super().__init__()
        self.num_heads = shape.num_heads
        self.attention_norm = Norm(shape)
        self.qkv = nn.Linear(shape.dim, 3 * shape.dim, bias=shape.bias)
        self.attention_out = nn.Linear(shape.dim, shape.dim, bias=shape.bias)
        self.ffn_norm = Norm(shape)
        self.ffn_in = nn.Linear(shape.dim, shape.ffn_dim, bias=shape.bias)
        self.ffn_out = nn.Linear(shape.ffn_dim, shape.dim, bias=shape.bias)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(b, t, 3, self.num_heads, c // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, H, T, C / H]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(b, t, c))
        hidden = F.gelu(self.ffn_in(self.ffn_norm(x)), approximate="tanh")
        return x + self.ffn_out(hidden)


class Transformer(nn.Module):
    """Token ids and targets [B, T] to the mean cross entropy."""

    def __init__(self, shape):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab_size, shape.dim)
        self.positions = nn.Parameter(torch.empty(shape.seq_len, shape.dim))
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.num_layers))
        self.norm = Norm(shape)
        self.reset_parameters(shape)

    @torch.no_grad()
    def reset_parameters(self, shape):
        """GPT-2's start: 0.02 everywhere, residual projections divided by sqrt(2 L)."""
        residual_std = 0.02 / math.sqrt(2 * shape.num_layers)
        for name, parameter in self.named_parameters():
            if parameter.ndim >= 2:
                ends_residual = name.endswith(("attention_out.weight", "ffn_out.weight"))
                nn.init.normal_(parameter, std=residual_std if ends_residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions[: ids.shape[1]]  # [B, T, C]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)  # [B, T, V]
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def parameter_groups(model, weight_decay):
    """Matrices decay; norms and biases do not."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
