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
from urllib.request import urlopen
from zipfile import ZipFile

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from tensorboard_attention.tests.conftest import serve

SOURCES = Path(__file__).parent.parent
EXAMPLES = re.findall(r"^```python\n(.*?)^```", (SOURCES / "README.md").read_text(), re.M | re.S)
OURS = re.compile(r"_?(__editable__.*)?(glassgpt|tensorboard_attention)", re.IGNORECASE)
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


def runs_after(example: str, python: Path, folder: Path) -> dict:
    """What TensorBoard lists after an example of the README has run in a folder."""
    (folder / "example.py").write_text(
        f"{example}\nimport tensorboard_attention\nprint(tensorboard_attention.__file__)\n"
        f"assert tensorboard_attention.__file__.startswith({str(python.parent.parent)!r})\n"
    )
    run(python, "example.py", cwd=folder)
    with serve("--logdir", "runs", python=python, cwd=folder) as (url, _):
        return json.load(urlopen(f"{url}data/plugin/attention/runs"))["steps"]


@pytest.mark.long
def test_the_example_runs_where_only_the_wheel_is_installed(wheel: Path, tmp_path: Path) -> None:
    """In a new environment with this one's other packages, and a tiny model named gpt2."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    others = tmp_path / "others"
    others.mkdir()
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not OURS.match(package.name) and package.suffix != ".pth":
            (others / package.name).symlink_to(package)
    run(sys.executable, "-m", "venv", "--without-pip", "new", cwd=tmp_path)
    python = tmp_path / "new" / "bin" / "python"
    (packages,) = (tmp_path / "new").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(str(others))
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    absent = ("model", "training", "glassgpt")
    check = f"from importlib.util import find_spec; assert not any(map(find_spec, {absent}))"
    run(python, "-c", check, cwd=tmp_path)

    vocabulary = {letter: i for i, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path / "gpt2")
    config = GPT2Config(vocab_size=256, n_layer=2, n_head=2, n_embd=8, n_positions=64)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    assert runs_after(EXAMPLES[0], python, tmp_path) == {"gpt2": {"my probe": [0]}}


@pytest.mark.long
def test_the_wheel_installs_from_the_package_index_without_torch(
    wheel: Path, tmp_path: Path
) -> None:
    run(sys.executable, "-m", "venv", "new", cwd=tmp_path)
    python = tmp_path / "new" / "bin" / "python"
    run(python, "-m", "pip", "install", wheel, cwd=tmp_path)
    check = "from importlib.util import find_spec; assert not find_spec('torch')"
    run(python, "-c", check, cwd=tmp_path)
    assert runs_after(EXAMPLES[1], python, tmp_path) == {"numpy": {"my probe": [0]}}
