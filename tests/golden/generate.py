"""Writes the golden files of this folder from PyTorch and transformers.

    python tests/golden/generate.py             writes the files
    python tests/golden/generate.py --check     recomputes them and compares with those stored

README.md says what each tensor means; requirements.txt holds the versions that were used.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from recipes import layers, losses, models, optimizers, schedules, training

HERE = Path(__file__).resolve().parent
SIZE_LIMIT_BYTES = 1_500_000

# Stored and recomputed values may differ by rounding on another processor, never by more.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def build():
    """File name -> named tensors or JSON value, for every golden file."""
    files = {}
    for stem, recipe in (("layers", layers), ("losses", losses), ("optim", optimizers)):
        files[f"{stem}.safetensors"], files[f"{stem}.json"] = recipe.build()
    files["schedules.json"] = schedules.build()
    families = (
        ("gpt2", models.gpt2_model, models.own_logits, models.GPT2),
        ("llama", models.llama_model, models.llama_logits, models.LLAMA),
    )
    for stem, make, forward, settings in families:
        weights, expected = models.record(make(), forward, stem)
        files[f"{stem}.safetensors"], files[f"{stem}_expected.safetensors"] = weights, expected
        files[f"{stem}.json"] = settings
    files["twenty_losses.safetensors"], files["twenty_losses.json"] = training.build()
    return files


def write(files):
    """Writes every file and the generated list of contents."""
    for name, content in files.items():
        if name.endswith(".json"):
            (HERE / name).write_text(json.dumps(content, indent=2) + "\n")
        else:
            tensors = {key: value.clone().contiguous() for key, value in content.items()}
            save_file(tensors, HERE / name, metadata={"format": "pt"})
    (HERE / "CONTENTS.md").write_text(contents(files))
    total = sum((HERE / name).stat().st_size for name in files)
    print(f"{len(files)} files, {total} bytes")
    if total > SIZE_LIMIT_BYTES:
        sys.exit(f"the golden files take {total} bytes, more than {SIZE_LIMIT_BYTES}")


def contents(files):
    """The list of all tensors with dtype and shape, as Markdown."""
    lines = ["# Contents", "", "Written by generate.py; README.md says what the names mean.", ""]
    for name, content in files.items():
        if name.endswith(".json"):
            continue
        lines += [f"## {name}", "", "| tensor | dtype | shape |", "|---|---|---|"]
        for key in sorted(content):
            dtype = str(content[key].dtype).removeprefix("torch.")
            lines.append(f"| `{key}` | {dtype} | {list(content[key].shape)} |")
        lines.append("")
    return "\n".join(lines)


def deviation(fresh, stored):
    """Largest difference, relative to the largest magnitude of the stored tensor."""
    if fresh.shape != stored.shape or fresh.dtype != stored.dtype:
        return float("inf")
    if not fresh.is_floating_point():
        return 0.0 if torch.equal(fresh, stored) else float("inf")
    largest = max(stored.abs().max().item(), 1e-300)
    return (fresh - stored).abs().max().item() / largest


def alike(fresh, stored):
    """Whether two JSON values are equal, numbers up to what float32 training may differ by."""
    if isinstance(fresh, dict):
        return fresh.keys() == stored.keys() and all(alike(fresh[k], stored[k]) for k in fresh)
    if isinstance(fresh, list):
        return len(fresh) == len(stored) and all(map(alike, fresh, stored))
    if isinstance(fresh, float):
        return abs(fresh - stored) <= 1e-4 * abs(stored) + 1e-12
    return fresh == stored


def check(files):
    """Compares every recomputed tensor with the stored one; exits with 1 on a difference."""
    problems = []
    for name, content in files.items():
        if name.endswith(".json"):
            if not alike(content, json.loads((HERE / name).read_text())):
                problems.append(f"{name} differs")
            continue
        stored = load_file(HERE / name)
        problems += [f"{name}: {key} is stored on one side only" for key in stored.keys() ^ content]
        for key in stored.keys() & content.keys():
            kind = torch.float32 if ".f32" in key else stored[key].dtype
            allowed = TOLERANCE.get(kind, 0.0)
            found = deviation(content[key], stored[key])
            if not found <= allowed:
                problems.append(f"{name}: {key} differs by {found:.3g}, allowed {allowed:.3g}")
    print("\n".join(problems) or "every stored tensor was reproduced")
    sys.exit(1 if problems else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    files = build()
    if arguments.check:
        check(files)
    else:
        write(files)


if __name__ == "__main__":
    main()
