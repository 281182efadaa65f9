"""Random inputs that depend on their name alone.

Each case draws from a generator seeded with a checksum of the case's name, so that adding,
removing or reordering cases never changes the numbers of another case.
"""

import zlib

import torch

torch.set_default_dtype(torch.float64)


def generator(name):
    """A generator whose stream is a function of `name`."""
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def normal(stream, *shape, scale=1.0):
    """Normal values in float64 that are exactly representable in float32.

    A test that runs in float32 therefore starts from the very same numbers.
    """
    values = torch.randn(*shape, generator=stream, dtype=torch.float64) * scale
    return values.float().double()


def integers(stream, high, *shape):
    """Uniform integers in `0..high` as int64."""
    return torch.randint(high, shape, generator=stream)


def differentiate(name, inputs, function, constants=None):
    """Runs `function` on `inputs` and on a random upstream gradient; returns all named tensors.

    `inputs` take part in differentiation, `constants` (indices, masks, tables) do not.
    """
    constants = constants or {}
    leaves = {key: value.clone().requires_grad_(True) for key, value in inputs.items()}
    output = function(**leaves, **constants)
    upstream = normal(generator(f"{name}/upstream"), *output.shape)
    gradients = torch.autograd.grad(output, list(leaves.values()), upstream)
    tensors = {f"{name}.{key}": value for key, value in {**inputs, **constants}.items()}
    tensors[f"{name}.output"] = output.detach()
    tensors[f"{name}.grad_output"] = upstream
    for key, gradient in zip(leaves, gradients, strict=True):
        tensors[f"{name}.grad_{key}"] = gradient
    return tensors
