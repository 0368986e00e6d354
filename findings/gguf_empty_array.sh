#!/usr/bin/env bash
# One would guess: GGUFWriter.add_array of an empty list writes an array of length 0, which the format can hold, or refuses.
# Instead, the key is left out, without a word, as is that of an empty text; the number 0 is written.
# It matters for a tokenizer of bytes, which has no merges: the file lacks tokenizer.ggml.merges, which llama.cpp demands of
# this kind of tokenizer, so that a file that was written well does not open.
# The product writes one merge of bytes that no text has: exchange/gguf_tokenizer.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check gguf==0.19.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'END'
from importlib.metadata import version

from gguf import GGUFReader, GGUFWriter

writer = GGUFWriter("model.gguf", "gpt2")
writer.add_tokenizer_model("gpt2")
writer.add_token_list(["a", "b"])
writer.add_token_merges([])
writer.add_string("an.empty.text", "")
writer.add_uint32("a.zero", 0)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.close()
keys = [key for key in GGUFReader("model.gguf").fields if not key.startswith("GGUF.")]
print("gguf", version("gguf"))
print("expected, too: tokenizer.ggml.merges an.empty.text")
print("seen:", *keys)
described = ["architecture", "model", "tokens", "zero"]
raise SystemExit([key.rsplit(".", 1)[1] for key in keys] != described)
END
