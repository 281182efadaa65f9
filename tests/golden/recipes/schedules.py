"""schedules.json: learning-rate factors step by step, each with its formula.

Every factor multiplies the base rate. `s` is the zero-based step, `w` the warm-up steps, `T` the
total, `d` the decay steps of WSD, `m` the final factor.
"""

import math

import torch
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

FROM_ZERO = "s / w"
FROM_ABOVE_ZERO = "(s + 1) / (w + 1)"

WARMUPS = {
    FROM_ZERO: lambda s, w: s / w,
    FROM_ABOVE_ZERO: lambda s, w: (s + 1) / (w + 1),
}


def constant(s, w, total, minimum, decay):
    return 1.0


def cosine(s, w, total, minimum, decay):
    if s >= total:
        return minimum
    return minimum + (1 - minimum) * 0.5 * (1 + math.cos(math.pi * (s - w) / (total - w)))


def linear(s, w, total, minimum, decay):
    if s >= total:
        return minimum
    return minimum + (1 - minimum) * (total - s) / (total - w)


def wsd_linear(s, w, total, minimum, decay):
    if s >= total:
        return minimum
    return 1.0 if s < total - decay else minimum + (1 - minimum) * (total - s) / decay


def wsd_sqrt(s, w, total, minimum, decay):
    if s >= total:
        return minimum
    if s < total - decay:
        return 1.0
    return 1 - (1 - minimum) * math.sqrt((s - (total - decay)) / decay)


FORMULAS = {
    "constant": (constant, "1"),
    "cosine": (cosine, "m + (1 - m) * (1 + cos(pi * (s - w) / (T - w))) / 2"),
    "linear": (linear, "m + (1 - m) * (T - s) / (T - w)"),
    "wsd_linear": (wsd_linear, "1 for s < T - d, then m + (1 - m) * (T - s) / d"),
    "wsd_sqrt": (wsd_sqrt, "1 for s < T - d, then 1 - (1 - m) * sqrt((s - (T - d)) / d)"),
}

NANOGPT_STEPS = [0, 1, 50, 98, 99, 100, 101, 500, 1000, 1049, 1050, 1500, 1998, 1999, 2000, 2500]


def table(name, shape, warmup, w, total, minimum, decay=0, base=1.0, steps=None):
    """One schedule with its inputs, its formula and its values."""
    after, text = FORMULAS[shape]
    steps = list(range(total + 3)) if steps is None else steps
    values = [
        base * (WARMUPS[warmup](s, w) if s < w else after(s, w, total, minimum, decay))
        for s in steps
    ]
    return {
        "name": name,
        "shape": shape,
        "warmup_formula": f"{warmup} for s < w",
        "formula": f"{text} for w <= s < T, constant from T on",
        "base": base,
        "warmup_steps": w,
        "total_steps": total,
        "decay_steps": decay,
        "min_factor": minimum,
        "steps": steps,
        "values": values,
    }


def check_against_transformers(tables):
    """The tables that transformers also knows must agree with it."""
    peers = {
        "cosine_table_a": get_cosine_schedule_with_warmup,
        "linear_from_zero": get_linear_schedule_with_warmup,
    }
    for entry in tables:
        if entry["name"] not in peers:
            continue
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        peer = peers[entry["name"]](optimizer, entry["warmup_steps"], entry["total_steps"])
        for step, value in zip(entry["steps"], entry["values"], strict=True):
            if step > entry["total_steps"]:
                break  # past the end its cosine has no defined value
            factor = peer.lr_lambdas[0](step)
            assert abs(factor - value) < 1e-12, (entry["name"], step, factor, value)


def build():
    """The list stored in schedules.json."""
    tables = [
        table("cosine_table_a", "cosine", FROM_ZERO, 4, 10, 0.0),
        table("cosine_table_b", "cosine", FROM_ABOVE_ZERO, 4, 10, 0.1),
        table("cosine_no_warmup", "cosine", FROM_ABOVE_ZERO, 0, 10, 0.1),
        table("linear_from_zero", "linear", FROM_ZERO, 4, 10, 0.0),
        table("linear_from_above_zero", "linear", FROM_ABOVE_ZERO, 4, 10, 0.1),
        table("constant_with_warmup", "constant", FROM_ABOVE_ZERO, 4, 10, 1.0),
        table("wsd_linear", "wsd_linear", FROM_ABOVE_ZERO, 4, 20, 0.1, decay=6),
        table("wsd_sqrt", "wsd_sqrt", FROM_ABOVE_ZERO, 4, 20, 0.1, decay=6),
        table(
            "shakespeare_recipe",
            "cosine",
            FROM_ABOVE_ZERO,
            100,
            2000,
            0.1,
            base=1e-3,
            steps=NANOGPT_STEPS,
        ),
    ]
    check_against_transformers(tables)
    return tables
