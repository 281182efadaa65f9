"""losses.safetensors: cross entropy in every reduction, with ignored rows and smoothing."""

import torch
import torch.nn.functional as F

from .draws import generator, integers, normal

IGNORE_INDEX = -100
SMOOTHING = 0.1

SCALARS = {"ignore_index": IGNORE_INDEX, "label_smoothing": SMOOTHING}

CASES = {
    "plain": ("targets", 0.0),
    "ignore": ("targets_ignored", 0.0),
    "smoothing": ("targets", SMOOTHING),
    "smoothing_ignore": ("targets_ignored", SMOOTHING),
}


def reductions(prefix, rows, classes):
    """Every case in every reduction for logits of shape [rows, classes]."""
    g = generator(prefix)
    logits = normal(g, rows, classes, scale=2.0)
    targets = integers(g, classes, rows)
    ignored = targets.clone()
    ignored[1::3] = IGNORE_INDEX
    shared = {
        "logits": logits,
        "targets": targets,
        "targets_ignored": ignored,
        "grad_output_none": normal(g, rows),
    }
    tensors = {f"{prefix}.{key}": value for key, value in shared.items()}
    for case, (labels, smoothing) in CASES.items():
        for reduction in ("none", "sum", "mean"):
            leaf = logits.clone().requires_grad_(True)
            loss = F.cross_entropy(
                leaf,
                shared[labels],
                reduction=reduction,
                ignore_index=IGNORE_INDEX,
                label_smoothing=smoothing,
            )
            upstream = shared["grad_output_none"] if reduction == "none" else torch.tensor(1.0)
            (gradient,) = torch.autograd.grad(loss, leaf, upstream)
            tensors[f"{prefix}.{case}.{reduction}.output"] = loss.detach()
            tensors[f"{prefix}.{case}.{reduction}.grad_logits"] = gradient
    return tensors


def from_hidden_states():
    """Mean cross entropy of `hidden @ weight.T`, differentiated to both factors."""
    g = generator("linear_cross_entropy")
    hidden = normal(g, 10, 6).requires_grad_(True)
    weight = normal(g, 37, 6).requires_grad_(True)
    targets = integers(g, 37, 10)
    targets[4] = IGNORE_INDEX
    loss = F.cross_entropy(F.linear(hidden, weight), targets, ignore_index=IGNORE_INDEX)
    grad_hidden, grad_weight = torch.autograd.grad(loss, (hidden, weight))
    tensors = {
        "hidden": hidden.detach(),
        "weight": weight.detach(),
        "targets": targets,
        "output": loss.detach(),
        "grad_hidden": grad_hidden,
        "grad_weight": grad_weight,
    }
    return {f"linear_cross_entropy.{key}": value for key, value in tensors.items()}


def build():
    """All tensors of losses.safetensors and the scalars of losses.json."""
    tensors = reductions("cross_entropy", 7, 5) | reductions("cross_entropy_wide", 6, 300)
    return tensors | from_hidden_states(), SCALARS
