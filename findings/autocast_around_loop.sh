#!/usr/bin/env bash
# One would guess: torch.autocast around a whole training loop costs nothing but the casts of gradients and updates.
# Instead, the loss stays where it is, to the last digit: the block keeps the bfloat16 copy of each weight that it made first,
# and no optimizer step renews the copies. Only leaving the block, or cache_enabled=False, drops them.
# It matters because no warning is given, and the float32 weights do change, so that checkpoints look trained. In a GPT the
# embeddings, which are not cast, go on learning and hide it.
# The product makes a new block for each forward pass: `autocast` in training/precision.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
from contextlib import nullcontext

import torch
import torch.nn.functional as F


def autocast() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


def losses(around_loop: bool) -> list[float]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    vectors, targets, found = torch.randn(8, 8), torch.arange(8), []
    before = model[0].weight.detach().clone()
    with autocast() if around_loop else nullcontext():
        for _ in range(5):
            optimizer.zero_grad()
            with autocast():
                loss = F.cross_entropy(model(vectors), targets)
            loss.backward()
            optimizer.step()
            found.append(round(loss.item(), 4))
    print(f"  a float32 weight moved by {(model[0].weight - before).abs().max():.2f}")
    return found


print("torch", torch.__version__)
print("autocast around each forward pass:")
print("  losses", wanted := losses(False))
print("autocast around the loop, too:")
print("  losses seen", seen := losses(True), "expected the same as above")
raise SystemExit(len({*seen}) > 1 or wanted[-1] > wanted[0] / 2)
END
