"""The wheel works without the rest of the repository, and so do the examples of the README."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
from email.parser import Parser
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from zipfile import ZipFile

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from tensorboard_attention.index import Index
from tensorboard_attention.tests.conftest import serve

SOURCES = Path(__file__).parent.parent
EXAMPLES = re.findall(r"^```python\n(.*?)^```", (SOURCES / "README.md").read_text(), re.M | re.S)
ABSENT = re.compile(r"_?(__editable__.*)?(glassgpt|tensorboard_attention)|torch$", re.IGNORECASE)
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=SOURCES)
    (path,) = folder.iterdir()
    return path


def test_the_wheel_has_the_package_and_declares_what_it_imports(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        required = Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist", [])
    modules = [*SOURCES.glob("*.py")]
    files = [*modules, *(SOURCES / "static").iterdir()]
    assert names == {f"tensorboard_attention/{path.relative_to(SOURCES)}" for path in files}
    imported = set()
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).split(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
    # torch only for annotations: another test asserts that nothing imports it.
    imported -= {*sys.stdlib_module_names, "tensorboard_attention", "torch"}
    imported = {"protobuf" if name == "google" else name for name in imported}
    declared = {package for package in required if "extra ==" not in package}
    assert declared == imported


@pytest.mark.long
def test_the_wheel_works_alone_and_without_torch(wheel: Path, tmp_path: Path) -> None:
    """In a new environment with this one's other packages."""
    others = tmp_path / "others"
    others.mkdir()
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not ABSENT.match(package.name) and package.suffix != ".pth":
            (others / package.name).symlink_to(package)
    run(sys.executable, "-m", "venv", "--without-pip", "new", cwd=tmp_path)
    python = tmp_path / "new" / "bin" / "python"
    (packages,) = (tmp_path / "new").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(str(others))
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    absent = ("model", "training", "glassgpt", "torch")
    check = f"from importlib.util import find_spec; assert not any(map(find_spec, {absent}))"
    run(python, "-c", check, cwd=tmp_path)
    (example,) = (text for text in EXAMPLES if "runs/numpy" in text)
    run(python, "-c", example, cwd=tmp_path)
    with serve("--logdir", "runs", python=python, cwd=tmp_path) as (url, _):
        steps = json.load(urlopen(f"{url}data/plugin/attention/runs"))["steps"]
    assert steps == {"numpy": {"my probe": [0]}}


def test_every_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiny models in the place of those that it names."""
    vocabulary = {letter: i for i, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2 = GPT2Config(vocab_size=256, n_layer=2, n_head=2, n_embd=8, n_positions=64)
    sizes: dict[str, Any] = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2}
    t5 = T5Config(vocab_size=256, decoder_start_token_id=0, **sizes)
    named = {"gpt2": GPT2LMHeadModel(gpt2), "google-t5/t5-small": T5ForConditionalGeneration(t5)}
    for name, model in named.items():
        model.save_pretrained(tmp_path / name)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for example in EXAMPLES:
        exec(compile(example, "README.md", "exec"), {})
    index = Index("runs")
    assert index.refresh()
    runs = {name: {"my probe": [0]} for name in ("gpt2", "named", "numpy", "wired")}
    assert index.steps() == runs | {"t5": {"cross attention": [0]}}
    keys = json.loads(index.maps("t5", "cross attention", 0)[0])["keys"]
    assert "".join(keys) == "translate English to German: a hen"
