"""gpt2 and llama: tiny random models of transformers, their logits, loss and gradients."""

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from . import llama_f64
from .draws import generator, integers, normal

VOCAB = 61
LENGTH = 16

GPT2 = {
    "model_type": "gpt2",
    "vocab_size": VOCAB,
    "n_positions": LENGTH,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 3,
    "n_inner": 96,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
}

LLAMA = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": LENGTH,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}


def without_type(settings):
    return {key: value for key, value in settings.items() if key != "model_type"}


def gpt2_model():
    """The tiny GPT-2, in float64, with values that float32 can hold."""
    config = GPT2Config(**without_type(GPT2), attn_implementation="eager")
    return fill(GPT2LMHeadModel(config), "gpt2")


def llama_model():
    """The tiny Llama, in float64, with values that float32 can hold."""
    settings = without_type(LLAMA)
    theta = settings.pop("rope_theta")
    rope = {"rope_type": "default", "rope_theta": theta}
    config = LlamaConfig(**settings, rope_parameters=rope, attn_implementation="eager")
    return fill(LlamaForCausalLM(config), "llama")


def fill(model, name):
    """Replaces every parameter by named random values.

    Biases and norm scales are random too, and matrices are larger than at a usual start, so that
    attention is far from uniform and no term of a gradient is hidden by another.
    """
    model = model.double()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            stream = generator(f"{name}/{key}")
            if parameter.ndim >= 2:
                parameter.copy_(normal(stream, *parameter.shape, scale=0.2))
            elif key.endswith("bias"):
                parameter.copy_(normal(stream, *parameter.shape, scale=0.1))
            else:
                parameter.copy_((1.0 + normal(stream, *parameter.shape, scale=0.1)).float())
    return model.eval()


def own_logits(model, ids):
    """Logits of the transformers model itself; GPT-2 computes all of it in float64."""
    return model(ids, use_cache=False).logits


def llama_logits(model, ids):
    """Logits by the float64 forward pass, on the model's own parameters."""
    return llama_f64.forward(dict(model.named_parameters()), ids, LLAMA)


def greedy(model, forward, prompt):
    """The prompt continued to the full length, always by the largest logit."""
    tokens = prompt
    with torch.no_grad():
        while tokens.shape[1] < LENGTH:
            following = forward(model, tokens)[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat((tokens, following), dim=1)
    return tokens


def gradients(model, forward, ids, targets):
    """Logits, loss and the gradient of every parameter by name."""
    model.zero_grad()
    logits = forward(model, ids)
    assert logits.dtype == torch.float64
    loss = F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))
    loss.backward()
    by_name = {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {"logits": logits.detach(), "loss": loss.detach()} | by_name


def hold_against_transformers(model, expected):
    """The recorded values must be those of the transformers model, up to its float32 parts."""
    theirs = gradients(model, own_logits, expected["input_ids"], expected["targets"])
    for name, value in theirs.items():
        difference = (value - expected[name]).abs().max() / expected[name].abs().max()
        assert difference < 1e-5, (name, difference)


def record(model, forward, name):
    """Weights as transformers saves them, and everything expected of them."""
    stream = generator(f"{name}/tokens")
    ids, targets = integers(stream, VOCAB, 2, LENGTH), integers(stream, VOCAB, 2, LENGTH)
    weights = {key: parameter.detach() for key, parameter in model.named_parameters()}
    expected = {"input_ids": ids, "targets": targets}
    expected |= gradients(model, forward, ids, targets)
    expected["greedy"] = greedy(model, forward, ids[:, :5])
    hold_against_transformers(model, expected)
    return weights, expected
