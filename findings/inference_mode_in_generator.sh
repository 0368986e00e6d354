#!/usr/bin/env bash
# One would guess: around a generator that yields tokens, the decorator @torch.inference_mode() does what a `with` block in its
# body does. Instead, the block stays on while the generator waits at a yield, so the caller's code between two tokens runs
# in it: its results have no gradient, and later no training can use them. The decorator switches the mode off at each yield.
# It matters where a training streams samples, such as to score each as it grows.
# The product uses the form of a decorator: inference/generation.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
from collections.abc import Iterator

import torch

model = torch.nn.Linear(4, 4)


def block() -> Iterator[int]:
    with torch.inference_mode():
        for _ in range(3):
            yield int(model(torch.ones(4)).argmax())


@torch.inference_mode()
def decorated() -> Iterator[int]:
    for _ in range(3):
        yield int(model(torch.ones(4)).argmax())


print("torch", torch.__version__)
seen = {}
for stream in (block, decorated):
    seen[stream.__name__] = [model(torch.ones(4)).requires_grad for _ in stream()]
    print(f"{stream.__name__}: do the caller's outputs between tokens have a gradient?")
    print("  expected [True, True, True], seen", seen[stream.__name__])
raise SystemExit(seen != {"block": [False] * 3, "decorated": [True] * 3})
END
