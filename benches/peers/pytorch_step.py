"""Times one training step of eager PyTorch on the CPU and prints one JSON line."""

import argparse
import json
import statistics
import time

import torch

import process
from model import Shape, Transformer, parameter_groups

PRESETS = {
    "tutorial": Shape(
        vocab_size=800, dim=256, num_heads=4, num_layers=4, ffn_dim=1024, seq_len=64, batch=32
    ),
    "gpt2-small": Shape(
        vocab_size=50304, dim=768, num_heads=12, num_layers=12, ffn_dim=3072, seq_len=256, batch=2
    ),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="tutorial")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30, help="steps that are timed")
    parser.add_argument("--warmup", type=int, default=3, help="steps before those")
    parser.add_argument("--clip", type=float, help="clip gradients to this global norm")
    parser.add_argument("--optimizer", choices=("fused", "foreach"), default="fused")
    parser.add_argument("--json", action="store_true", help="print one JSON line only")
    return parser.parse_args()


def step(model, optimizer, parameters, batch, clip):
    """One whole step; returns the loss as a number, so all of its work is done."""
    loss = model(*batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(parameters, clip)
    optimizer.step()
    return loss.item()


def measure(options):
    shape = PRESETS[options.preset]
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    import_peak = process.resident_peak_bytes()
    model = Transformer(shape)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        parameter_groups(model, weight_decay=0.01),
        lr=2e-4,
        fused=options.optimizer == "fused",
        foreach=options.optimizer == "foreach",
    )
    first_step_at, milliseconds, loss = None, [], None
    for index in range(options.warmup + options.steps):
        tokens = torch.randint(shape.vocab_size, (shape.batch, shape.seq_len + 1))
        begun = time.perf_counter()
        loss = step(model, optimizer, parameters, (tokens[:, :-1], tokens[:, 1:]), options.clip)
        if first_step_at is None:
            first_step_at = process.age_seconds()
        if index >= options.warmup:
            milliseconds.append(1e3 * (time.perf_counter() - begun))
    median = statistics.median(milliseconds)
    return {
        "peer": "pytorch-eager",
        "preset": options.preset,
        "threads": torch.get_num_threads(),
        "optimizer": options.optimizer,
        "params": sum(parameter.numel() for parameter in parameters),
        "steps": options.steps,
        "loss": loss,
        "step_ms_median": median,
        "step_ms_min": min(milliseconds),
        "tokens_per_second": 1e3 * shape.batch * shape.seq_len / median,
        "resident_peak_bytes": process.resident_peak_bytes(),
        "resident_after_import_bytes": import_peak,
        "start_to_first_step_s": first_step_at,
        "torch": torch.__version__,
    }


def main():
    options = arguments()
    result = measure(options)
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{key:28} {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
