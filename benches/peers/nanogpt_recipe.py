"""Trains nanoGPT's small character-level recipe with eager PyTorch and prints one JSON line.

4 layers, 4 heads, width 128, block 64, batch 12, 2000 steps, no dropout, no biases; learning rate
1e-3 falling to 1e-4 along a cosine after 100 warm-up steps; AdamW 0.9 / 0.99, decay 0.1, clip 1.0;
the last tenth of the text validates, 20 random batches of each part every 250 steps.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import torch

import process
from model import Shape, Transformer, parameter_groups

STEPS, WARMUP_STEPS = 2000, 100
PEAK_RATE, FINAL_RATE = 1e-3, 1e-4
EVAL_EVERY, EVAL_BATCHES = 250, 20
BATCH, BLOCK = 12, 64


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a text file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--optimizer", choices=("fused", "foreach"), default="fused")
    parser.add_argument("--json", action="store_true", help="print one JSON line only")
    return parser.parse_args()


def read(path):
    """Training and validation ids and the number of different characters."""
    text = path.read_text(encoding="utf-8")
    index = {character: position for position, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([index[character] for character in text])
    border = int(0.9 * len(ids))
    if len(ids) - border <= BLOCK:
        sys.exit(f"{path}: {len(ids)} characters leave no validation block of {BLOCK + 1}")
    return ids[:border], ids[border:], len(index)


def draw(ids):
    """A random batch: inputs and targets [BATCH, BLOCK]."""
    starts = torch.randint(len(ids) - BLOCK, (BATCH, 1))
    window = ids[starts + torch.arange(BLOCK + 1)]
    return window[:, :-1], window[:, 1:]


def learning_rate(step, total):
    if step < WARMUP_STEPS:
        return PEAK_RATE * (step + 1) / (WARMUP_STEPS + 1)
    progress = min(1.0, (step - WARMUP_STEPS) / (total - WARMUP_STEPS))
    return FINAL_RATE + 0.5 * (1 + math.cos(math.pi * progress)) * (PEAK_RATE - FINAL_RATE)


@torch.no_grad()
def sampled_loss(model, ids):
    """Mean loss over random batches, as the recipe reports it."""
    return sum(model(*draw(ids)).item() for _ in range(EVAL_BATCHES)) / EVAL_BATCHES


@torch.no_grad()
def whole_loss(model, ids):
    """Mean loss over all full blocks of `ids`: free of sampling noise."""
    blocks = (len(ids) - 1) // BLOCK
    inputs = ids[: blocks * BLOCK].view(blocks, BLOCK)
    targets = ids[1 : blocks * BLOCK + 1].view(blocks, BLOCK)
    total = sum(
        model(x, y).item() * len(x)
        for x, y in zip(inputs.split(64), targets.split(64), strict=True)
    )
    return total / blocks


def train(model, optimizer, training, validation, options):
    """The whole run; returns the training and validation loss of the last evaluation."""
    parameters = list(model.parameters())
    losses = None
    for step in range(options.steps + 1):
        if step % EVAL_EVERY == 0 or step == options.steps:
            losses = sampled_loss(model, training), sampled_loss(model, validation)
            if not options.json:
                print(f"step {step:5}  train {losses[0]:.4f}  validation {losses[1]:.4f}")
        if step == options.steps:
            return losses
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, options.steps)
        loss = model(*draw(training))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()


def main():
    options = arguments()
    if options.steps <= WARMUP_STEPS:
        sys.exit(f"--steps {options.steps}: the recipe needs more than {WARMUP_STEPS}")
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    training, validation, vocab_size = read(options.data)
    shape = Shape(vocab_size, 128, 4, 4, 512, BLOCK, BATCH, bias=False)
    model = Transformer(shape)
    optimizer = torch.optim.AdamW(
        parameter_groups(model, weight_decay=0.1),
        lr=PEAK_RATE,
        betas=(0.9, 0.99),
        fused=options.optimizer == "fused",
        foreach=options.optimizer == "foreach",
    )
    begun = time.perf_counter()
    train_loss, val_loss = train(model, optimizer, training, validation, options)
    training_seconds, total_seconds = time.perf_counter() - begun, process.age_seconds()
    result = {
        "peer": "pytorch-nanogpt-recipe",
        "threads": torch.get_num_threads(),
        "optimizer": options.optimizer,
        "steps": options.steps,
        "params": sum(parameter.numel() for parameter in model.parameters()),
        "total_seconds": total_seconds,
        "training_seconds": training_seconds,
        "train_loss": train_loss,
        "val_loss": val_loss,
        "val_loss_whole_split": whole_loss(model, validation),
        "resident_peak_bytes": process.resident_peak_bytes(),
        "torch": torch.__version__,
    }
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{key:28} {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
