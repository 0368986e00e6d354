#!/usr/bin/env bash
# One would guess: safetensors.numpy.save_file writes the values of an array, or refuses one whose memory is in another order,
# as safetensors.torch does. Instead, a transposed array, or one in Fortran's order, is written with its shape but the order
# of its memory: it is read back as other values, without a word.
# It matters because GPT-2 of Hugging Face stores its weights transposed, so an exporter with numpy writes `weight.T`.
# The product writes through safetensors.torch, contiguous tensors: store/weights.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'END'
import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

weight = np.arange(6, dtype=np.float32).reshape(2, 3)
arrays = {"transposed": weight.T, "in Fortran's order": np.asfortranarray(weight)}
save_file(arrays, "weights.safetensors")
loaded = load_file("weights.safetensors")
print("safetensors", safetensors.__version__)
for name, array in arrays.items():
    print(f"{name}: expected {array.tolist()}, seen {loaded[name].tolist()}")
same = [np.array_equal(loaded[name], array) for name, array in arrays.items()]
raise SystemExit(any(same))
END
