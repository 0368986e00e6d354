#!/usr/bin/env bash
# One would guess: if a config.json has rope_parameters, as transformers 5 writes it, and somebody adds rope_scaling, the key
# of version 4 for a longer context, then the two are merged, or the newer key wins. Instead, rope_scaling replaces the other
# whole, and the base of the frequencies falls back to 10000 without a warning; a rope_theta at the top is kept.
# It matters for tiny models, whose base is often smaller than 10000: positions become those of another model.
# The product writes the base at both places and reads it in this order: exchange/config.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.23.0
cd "$folder"
export TRANSFORMERS_VERBOSITY=error HF_HUB_DISABLE_PROGRESS_BARS=1
"$folder/venv/bin/python" - <<'END'
import json
from pathlib import Path

import transformers

print("transformers", transformers.__version__)
seen = []
for extra in ({}, {"rope_theta": 500.0}):
    Path("model").mkdir(exist_ok=True)
    transformers.LlamaConfig(
        hidden_size=32, num_attention_heads=2, rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    ).save_pretrained("model")
    file = Path("model/config.json")
    scaling = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    file.write_text(json.dumps(json.loads(file.read_text()) | scaling | extra))
    found = transformers.AutoConfig.from_pretrained("model").rope_parameters
    print(f"rope_parameters of base 500, with rope_scaling and {extra or 'nothing else'}:")
    print("  expected rope_theta 500.0, seen", found)
    seen.append(found["rope_theta"])
raise SystemExit(seen != [10000.0, 500.0])
END
