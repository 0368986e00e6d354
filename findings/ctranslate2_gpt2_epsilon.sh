#!/usr/bin/env bash
# One would guess: the converter of CTranslate2 carries over layer_norm_epsilon of a GPT-2, as it does for other models, or
# refuses a value that it cannot represent. Instead, it leaves the value out, and the norms compute with 1e-5.
# It matters because a model with another epsilon gives other logits, without a warning; how far they are from the right ones
# depends on how small the activations are, and in a tiny model they are small.
# The product writes the epsilon of the run to config.json (exchange/config.py); runs have 1e-5 unless model.norm_eps is set.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    torch==2.13.0 transformers==5.23.0 ctranslate2==4.8.5 numpy==2.4.6
cd "$folder"
export TRANSFORMERS_VERBOSITY=error HF_HUB_DISABLE_PROGRESS_BARS=1
"$folder/venv/bin/python" - <<'END'
import ctranslate2
import numpy as np
import torch
import transformers
from ctranslate2.converters import TransformersConverter
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Tokenizer


def is_norm(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.LayerNorm)


WORDS = ["<|endoftext|>", *"abcdefghijklmno"]
print("ctranslate2", ctranslate2.__version__, "transformers", transformers.__version__)
ids = torch.arange(1, 6)[None]
seen = {}
for epsilon in (1e-5, 1e-3):
    torch.manual_seed(1)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16, "vocab_size": len(WORDS)}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **ends, layer_norm_epsilon=epsilon)).eval()
    model.save_pretrained("model")
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    GPT2Tokenizer(vocab=vocabulary, merges=[], unk_token=WORDS[0]).save_pretrained("model")
    TransformersConverter("model").convert("converted", force=True)
    generator = ctranslate2.Generator("converted", device="cpu")
    theirs = torch.tensor(np.array(generator.forward_batch([WORDS[1:6]])))
    with torch.no_grad():
        wanted = model(ids).logits
        for norm in filter(is_norm, model.modules()):
            norm.eps = 1e-5
        default = model(ids).logits
    seen[epsilon] = [(theirs - logits).abs().max().item() for logits in (wanted, default)]
    print(f"layer_norm_epsilon {epsilon:g}: logits of {wanted.std():.3f} (standard deviation)")
    print("  difference from transformers: expected below 1e-6, seen {:.1e}".format(seen[epsilon][0]))
    print("  from transformers with 1e-5:                         seen {:.1e}".format(seen[epsilon][1]))
raise SystemExit(not (max(seen[1e-5]) < 1e-6 and seen[1e-3][1] < 1e-6 and seen[1e-3][0] > 1e-3))
END
