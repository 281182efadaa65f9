"""twenty_losses: the tiny GPT-2 trained for twenty steps in float32 and in float64."""

import torch
import torch.nn.functional as F

from .draws import generator, integers
from .models import LENGTH, VOCAB, gpt2_model

STEPS = 20
BATCH = 4

SETTINGS = {
    "steps": STEPS,
    "batch": BATCH,
    "learning_rate": 1e-3,
    "betas": [0.9, 0.95],
    "eps": 1e-8,
    "weight_decay": 0.1,
    "weight_decay_applies_to": "parameters with at least two dimensions",
    "clip_norm": 1.0,
}


def batches():
    """Token ids [steps, batch, length + 1]: walks with a fixed stride and a few random jumps."""
    stream = generator("twenty_losses/tokens")
    start = integers(stream, VOCAB, STEPS, BATCH, 1)
    stride = torch.arange(LENGTH + 1) * 7
    noise = integers(stream, VOCAB, STEPS, BATCH, LENGTH + 1)
    jump = integers(stream, 8, STEPS, BATCH, LENGTH + 1) == 0
    return torch.where(jump, noise, (start + stride) % VOCAB)


def train(dtype, tokens):
    """Losses and gradient norms before clipping, and the parameters after the last step."""
    model = gpt2_model().to(dtype)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": SETTINGS["weight_decay"]},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=SETTINGS["learning_rate"],
        betas=tuple(SETTINGS["betas"]),
        eps=SETTINGS["eps"],
        foreach=False,
    )
    losses, norms = [], []
    for batch in tokens:
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS["clip_norm"])
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    final = {key: parameter.detach() for key, parameter in model.named_parameters()}
    return losses, norms, final


def build():
    """Tensors of twenty_losses.safetensors and the record of twenty_losses.json."""
    tokens = batches()
    tensors, record = {"tokens": tokens}, dict(SETTINGS)
    for label, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        losses, norms, final = train(dtype, tokens)
        tensors[f"losses.{label}"] = torch.tensor(losses)
        tensors[f"grad_norms.{label}"] = torch.tensor(norms)
        tensors |= {f"final.{label}.{key}": value for key, value in final.items()}
        record[f"losses_{label}"], record[f"grad_norms_{label}"] = losses, norms
    return tensors, record
