"""layers.safetensors: every layer and attention form, with the gradient of each input."""

import torch
import torch.nn.functional as F

from .draws import differentiate, generator, integers, normal

LAYER_NORM_EPS = 1e-5
RMS_NORM_EPS = 1e-6
ROPE_BASE = 10000.0
ROPE_OFFSET = 3

SCALARS = {
    "layer_norm.eps": LAYER_NORM_EPS,
    "layer_norm_no_bias.eps": LAYER_NORM_EPS,
    "layer_norm_no_affine.eps": LAYER_NORM_EPS,
    "rms_norm.eps": RMS_NORM_EPS,
    "rope.base": ROPE_BASE,
    "rope.offset": 0,
    "rope_offset.base": ROPE_BASE,
    "rope_offset.offset": ROPE_OFFSET,
    "attention_causal.scale": 8**-0.5,
    "attention_causal_long.scale": 4**-0.5,
    "attention_grouped.scale": 8**-0.5,
    "attention_masked.scale": 8**-0.5,
}


def projections():
    """Linear with and without bias, the embedding lookup, the SwiGLU network."""
    tensors = {}
    g = generator("linear")
    inputs = {"input": normal(g, 2, 3, 5), "weight": normal(g, 7, 5), "bias": normal(g, 7)}
    tensors |= differentiate("linear", inputs, F.linear)
    g = generator("linear_no_bias")
    inputs = {"input": normal(g, 2, 3, 5), "weight": normal(g, 7, 5)}
    tensors |= differentiate("linear_no_bias", inputs, F.linear)

    g = generator("embedding")
    indices = integers(g, 11, 2, 4)
    indices[1, 3] = indices[0, 0]  # a repeated index, so that its gradients have to be added
    inputs = {"weight": normal(g, 11, 6)}
    constants = {"indices": indices}

    def lookup(weight, indices):
        return F.embedding(indices, weight)

    tensors |= differentiate("embedding", inputs, lookup, constants)

    g = generator("swiglu")
    inputs = {
        "input": normal(g, 2, 3, 6),
        "gate_weight": normal(g, 10, 6),
        "up_weight": normal(g, 10, 6),
        "down_weight": normal(g, 6, 10),
    }

    def swiglu(input, gate_weight, up_weight, down_weight):
        gated = F.silu(F.linear(input, gate_weight)) * F.linear(input, up_weight)
        return F.linear(gated, down_weight)

    return tensors | differentiate("swiglu", inputs, swiglu)


def norms():
    """Layer norm in its three forms and RMS norm, over the last dimension."""
    tensors = {}
    g = generator("layer_norm")
    inputs = {"input": normal(g, 2, 3, 8, scale=3.0), "weight": normal(g, 8), "bias": normal(g, 8)}
    tensors |= differentiate(
        "layer_norm",
        inputs,
        lambda input, weight, bias: F.layer_norm(input, (8,), weight, bias, LAYER_NORM_EPS),
    )
    g = generator("layer_norm_no_bias")
    inputs = {"input": normal(g, 2, 3, 8, scale=3.0), "weight": normal(g, 8)}
    tensors |= differentiate(
        "layer_norm_no_bias",
        inputs,
        lambda input, weight: F.layer_norm(input, (8,), weight, None, LAYER_NORM_EPS),
    )
    g = generator("layer_norm_no_affine")
    inputs = {"input": normal(g, 2, 3, 8, scale=3.0)}
    tensors |= differentiate(
        "layer_norm_no_affine",
        inputs,
        lambda input: F.layer_norm(input, (8,), None, None, LAYER_NORM_EPS),
    )
    g = generator("rms_norm")
    inputs = {"input": normal(g, 2, 3, 8, scale=3.0), "weight": normal(g, 8)}
    return tensors | differentiate(
        "rms_norm",
        inputs,
        lambda input, weight: F.rms_norm(input, (8,), weight, RMS_NORM_EPS),
    )


def pointwise():
    """Activations and the two softmax forms."""
    tensors = {}
    grid = torch.linspace(-6.0, 6.0, 49).float().double().reshape(7, 7)
    activations = {
        "gelu_exact": lambda input: F.gelu(input, approximate="none"),
        "gelu_tanh": lambda input: F.gelu(input, approximate="tanh"),
        "silu": F.silu,
    }
    for name, function in activations.items():
        tensors |= differentiate(name, {"input": grid.clone()}, function)
    scores = normal(generator("softmax"), 2, 3, 9, scale=3.0)
    tensors |= differentiate("softmax", {"input": scores}, lambda input: F.softmax(input, -1))
    tensors |= differentiate("softmax_dim1", {"input": scores}, lambda input: F.softmax(input, 1))
    return tensors | differentiate(
        "log_softmax", {"input": scores}, lambda input: F.log_softmax(input, -1)
    )


def rotate_half(x):
    """Turns the halves (a, b) of the last dimension into (-b, a), as Llama does."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotary(name, offset):
    """Rotary embedding of positions `offset..offset + T`, half-split convention."""
    head_dim, length = 8, 5
    frequencies = ROPE_BASE ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    angles = torch.outer(torch.arange(offset, offset + length).double(), frequencies)  # [T, D/2]
    constants = {"cos": angles.cos(), "sin": angles.sin()}

    def apply(input, cos, sin):
        return input * torch.cat((cos, cos), -1) + rotate_half(input) * torch.cat((sin, sin), -1)

    inputs = {"input": normal(generator(name), 2, 3, length, head_dim)}
    return differentiate(name, inputs, apply, constants)


def attention_inputs(name, query_shape, key_shape):
    """Random query, key and value; key and value share a shape."""
    g = generator(name)
    return {
        "query": normal(g, *query_shape),
        "key": normal(g, *key_shape),
        "value": normal(g, *key_shape),
    }


def attentions():
    """Scaled dot-product attention: causal, causal over many blocks, grouped, masked."""
    tensors = {}

    def causal(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    def grouped(query, key, value):
        repeats = query.shape[1] // key.shape[1]
        return causal(query, key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1))

    def masked(query, key, value, mask):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask.bool())

    shape = (2, 3, 6, 8)
    inputs = attention_inputs("attention_causal", shape, shape)
    tensors |= differentiate("attention_causal", inputs, causal)
    shape = (1, 2, 130, 4)
    inputs = attention_inputs("attention_causal_long", shape, shape)
    tensors |= differentiate("attention_causal_long", inputs, causal)
    inputs = attention_inputs("attention_grouped", (2, 4, 6, 8), (2, 2, 6, 8))
    tensors |= differentiate("attention_grouped", inputs, grouped)

    inputs = attention_inputs("attention_masked", (2, 2, 5, 8), (2, 2, 7, 8))
    mask = integers(generator("attention_masked/mask"), 2, 2, 1, 5, 7).to(torch.uint8)
    mask[..., 0] = 1  # no row may be masked as a whole
    return tensors | differentiate("attention_masked", inputs, masked, {"mask": mask})


def build():
    """All tensors of layers.safetensors and the scalars of layers.json."""
    tensors = projections() | norms() | pointwise() | attentions()
    tensors |= rotary("rope", 0) | rotary("rope_offset", ROPE_OFFSET)
    return tensors, SCALARS
