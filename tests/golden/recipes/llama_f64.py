"""The Llama forward pass in float64 throughout.

The model of transformers takes norms, rotary tables and softmax through float32 whatever the
type of its weights, which leaves about seven digits. Golden values need more, so they come from
this forward pass; `models.py` holds it against the model of transformers.
"""

import torch
import torch.nn.functional as F


def rotate(x, base):
    """Rotary embedding of [B, H, T, D] by positions 0..T, half-split convention."""
    length, head_dim = x.shape[-2:]
    frequencies = base ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    angles = torch.outer(torch.arange(length).double(), frequencies)  # [T, D/2]
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attention(x, weights, prefix, settings):
    """Causal attention in which several query heads share one key and value head."""
    batch, length, _ = x.shape
    head_dim, base = settings["head_dim"], settings["rope_theta"]

    def heads(name):
        projected = F.linear(x, weights[f"{prefix}{name}_proj.weight"])
        return projected.view(batch, length, -1, head_dim).transpose(1, 2)  # [B, H, T, D]

    query, key, value = rotate(heads("q"), base), rotate(heads("k"), base), heads("v")
    repeats = settings["num_attention_heads"] // settings["num_key_value_heads"]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scores = query @ key.transpose(-2, -1) * head_dim**-0.5  # [B, H, T, T]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    mixed = F.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ value
    return F.linear(mixed.transpose(1, 2).flatten(2), weights[f"{prefix}o_proj.weight"])


def forward(weights, ids, settings):
    """Logits [B, T, V] for `ids` [B, T]; `weights` under their Hugging Face names."""

    def norm(x, name):
        return F.rms_norm(x, (x.shape[-1],), weights[name], settings["rms_norm_eps"])

    x = F.embedding(ids, weights["model.embed_tokens.weight"])
    for layer in range(settings["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        normed = norm(x, f"{prefix}input_layernorm.weight")
        x = x + attention(normed, weights, f"{prefix}self_attn.", settings)
        normed = norm(x, f"{prefix}post_attention_layernorm.weight")
        gate = F.silu(F.linear(normed, weights[f"{prefix}mlp.gate_proj.weight"]))
        up = F.linear(normed, weights[f"{prefix}mlp.up_proj.weight"])
        x = x + F.linear(gate * up, weights[f"{prefix}mlp.down_proj.weight"])
    return F.linear(norm(x, "model.norm.weight"), weights["lm_head.weight"])
