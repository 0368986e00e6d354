#!/usr/bin/env bash
# One would guess: in the gradient of a bfloat16 embedding, the row of a token is the sum over its places, rounded once, as
# the product with one-hot rows gives it. Instead, on a CPU, the sum is kept in bfloat16 while it grows and stands still at
# 256, where one more is below half a step (float16: 2048). So does the gain of layer_norm, but not that of rms_norm.
# It matters because with bytes as tokens, a space has thousands of places in a batch, and its row learns from few of them.
# The product keeps weights and their gradients in float32 and computes in bfloat16 by autocast: training/precision.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
import torch
import torch.nn.functional as F

PLACES = 5000
tokens = torch.zeros(PLACES, dtype=torch.long)
print("torch", torch.__version__)
seen = {}
for dtype in (torch.bfloat16, torch.float16):
    upstream = torch.ones(PLACES, 2, dtype=dtype)
    weight = torch.zeros(3, 2, dtype=dtype, requires_grad=True)
    (product,) = torch.autograd.grad(F.one_hot(tokens, 3).to(dtype) @ weight, weight, upstream)
    (lookup,) = torch.autograd.grad(F.embedding(tokens, weight), weight, upstream)
    print(f"{dtype}: {PLACES} places with gradient 1; expected {product[0, 0]:g}, seen {lookup[0, 0]:g}")
    seen[dtype] = lookup[0, 0].item()

signs = torch.tensor([1.0, -1.0], dtype=torch.bfloat16).repeat(PLACES, 1)  # normalized already
for norm in (F.layer_norm, F.rms_norm):
    gain = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    (gradient,) = torch.autograd.grad(norm(signs, (2,), gain), gain, signs)
    print(f"gain of {norm.__name__}, bfloat16: expected 4992, seen {gradient[0]:g}")
    seen[norm.__name__] = gradient[0].item()
described = {torch.bfloat16: 256, torch.float16: 2048, "layer_norm": 256, "rms_norm": 4992}
raise SystemExit(seen != described)
END
