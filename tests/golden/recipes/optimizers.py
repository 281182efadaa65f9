"""optim.safetensors: AdamW and SGD step by step, and clipping by global norm."""

import torch

from .draws import generator, normal

STEPS = 8
LENGTH = 13

# One learning rate per step: the optimizer has to use the value of the step it takes.
CONSTANT = [0.01] * STEPS
CHANGING = [0.002, 0.004, 0.006, 0.008, 0.007, 0.005, 0.003, 0.001]

ADAMW = {
    "adamw_default": (CONSTANT, {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}),
    "adamw_no_decay": (CONSTANT, {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0}),
    "adamw_large_eps": (CONSTANT, {"betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1}),
    "adamw_schedule": (CHANGING, {"betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.1}),
}

SGD = {
    "sgd_plain": (CONSTANT, {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0}),
    "sgd_decay": (CONSTANT, {"momentum": 0.0, "nesterov": False, "weight_decay": 0.1}),
    "sgd_momentum": (CONSTANT, {"momentum": 0.9, "nesterov": False, "weight_decay": 0.0}),
    "sgd_momentum_decay": (CHANGING, {"momentum": 0.9, "nesterov": False, "weight_decay": 0.1}),
    "sgd_nesterov": (CHANGING, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
}

CLIPS = {
    "l2": {"norm_type": 2.0, "max_norm": 1.0},
    "l2_not_reached": {"norm_type": 2.0, "max_norm": 100.0},
    "inf": {"norm_type": "inf", "max_norm": 0.5},
    "inf_not_reached": {"norm_type": "inf", "max_norm": 100.0},
}


def trajectory(name, optimizer_class, rates, options, state_names):
    """Parameters and state after each step, stacked along the first dimension."""
    g = generator(name)
    initial = normal(g, LENGTH)
    gradients = normal(g, STEPS, LENGTH)
    gradients[3, 2] = 0.0
    parameter = torch.nn.Parameter(initial.clone())
    optimizer = optimizer_class([parameter], lr=rates[0], foreach=False, **options)
    history = {key: [] for key in ("param", *state_names)}
    for rate, gradient in zip(rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = gradient.clone()
        optimizer.step()
        history["param"].append(parameter.detach().clone())
        for key in state_names:
            history[key].append(optimizer.state[parameter][key].clone())
    tensors = {f"{name}.initial": initial, f"{name}.grad": gradients}
    return tensors | {f"{name}.{key}": torch.stack(values) for key, values in history.items()}


def clipping():
    """Three gradients clipped together under each limit."""
    g = generator("clip")
    gradients = [normal(g, 3, 4), normal(g, 5), normal(g, 2, 2, 2)]
    tensors = {f"clip.grad.{index}": gradient for index, gradient in enumerate(gradients)}
    for name, options in CLIPS.items():
        parameters = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_(
            parameters, options["max_norm"], norm_type=float(options["norm_type"])
        )
        tensors[f"clip.{name}.norm"] = norm
        for index, parameter in enumerate(parameters):
            tensors[f"clip.{name}.clipped.{index}"] = parameter.grad
    return tensors


def build():
    """All tensors of optim.safetensors and the options of optim.json."""
    tensors, options = clipping(), {f"clip.{name}": case for name, case in CLIPS.items()}
    for name, (rates, settings) in ADAMW.items():
        tensors |= trajectory(name, torch.optim.AdamW, rates, settings, ("exp_avg", "exp_avg_sq"))
        options[name] = {"optimizer": "adamw", "learning_rates": rates, **settings}
    for name, (rates, settings) in SGD.items():
        state = ("momentum_buffer",) if settings["momentum"] else ()
        tensors |= trajectory(name, torch.optim.SGD, rates, settings, state)
        options[name] = {"optimizer": "sgd", "learning_rates": rates, "dampening": 0.0, **settings}
    return tensors, options
