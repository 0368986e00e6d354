"""Every command and every piece of code of docs/hugging_face.md runs."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from exchange.tokenizer import write_tokenizer
from inference.opening import open_run
from tests.conftest import ROOT, command
from tests.exchange.hub import environment, serve

PAGE = (ROOT / "docs/hugging_face.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.long
def test_the_guide(tiny: Path, tiny_run: Path, tmp_path: Path) -> None:
    tokenizer = open_run(tiny_run, "best").tokenizer
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 64}
    gpt2 = tmp_path / "path/to/gpt2"
    GPT2LMHeadModel(GPT2Config(vocab_size=tokenizer.vocab_size, **sizes)).save_pretrained(gpt2)
    write_tokenizer(tokenizer, gpt2, 64)
    shutil.copytree(tiny_run, tmp_path / "runs/latest", symlinks=True)
    shutil.copytree(tiny / ".cache", tmp_path / ".cache")
    (tmp_path / "notes.txt").write_text("A cat saw a mouse. The mouse ran.\n" * 200)
    ran = 0
    with serve("openai-community/gpt2", gpt2) as hub:
        where = environment(hub.address, tmp_path / "cache")
        for language, code in BLOCKS:
            if language == "python":
                run_code(code, tmp_path)
            for line in code.splitlines() if not language else ():
                _, script, *arguments = shlex.split(line, comments=True)
                of_hub = where if "openai-community" in line else {}
                done = command(script.removesuffix(".py"), *arguments, cwd=tmp_path, **of_hub)
                assert done.returncode == 0, done.stderr
                ran += 1
    assert ran == 10
    made = {each.name for each in tmp_path.iterdir()}
    assert made >= {"storyteller", "storyteller.gguf", "gpt2.html", "gpt2_again"}


def run_code(code: str, folder: Path) -> None:
    if "llama_cpp" in code and not find_spec("llama_cpp"):
        return  # it is compiled by `make test-long`
    here = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(code, {})
        assert output.getvalue()
    finally:
        os.chdir(here)
