"""convert.py from the command line: both directions, what others see, mistakes, and the hub."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest
import safetensors.torch
import torch
from huggingface_hub import constants
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from common.errors import UserError
from exchange.hub import fetch, is_hub_name
from exchange.tokenizer import write_tokenizer
from exchange.weights import WEIGHTS
from inference.opening import open_run
from tests.conftest import PLAIN, command, files, succeed

ONCE = "Once there was a hen."


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as a folder of transformers; its tokenizer has a token for the end of a tale."""
    folder = tmp_path_factory.mktemp("tales")
    succeed("train", *PLAIN, "tokenizer.vocab_size=400", cwd=folder)
    succeed("convert", "source=runs/latest", "to=a story teller", cwd=folder)
    return folder / "a story teller"


@pytest.fixture(scope="module")
def without_end(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a run whose tokenizer has no empty line: a text ends with several tokens."""
    folder = tmp_path_factory.mktemp("without_end") / "there"
    succeed("convert", f"to={folder}", cwd=tiny)
    return folder


@pytest.mark.parametrize("name", ["exported", "without_end"])
def test_the_code_in_the_model_card_runs(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(request.getfixturevalue(name))
    card = Path("README.md").read_text(encoding="utf-8")
    assert "for 6 steps" in card and "name: tales" in card and "n_heads" in card
    assert ('stop_strings=["\\n\\n"]' in card) == (name == "without_end")
    (code,) = re.findall("```python\n(.*?)```", card, re.DOTALL)
    exec(code, {})
    begun = AutoModelForCausalLM.from_pretrained(".").generate(max_new_tokens=1)
    last = AutoTokenizer.from_pretrained(".").encode("\n\n")[-1]
    assert begun[0, 0] == last, "as sample.py without a prompt"


@pytest.mark.parametrize("name", ["exported", "without_end"])
def test_what_was_finetuned_in_transformers_comes_back(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Low-rank updates, merged by hand, and saved with the tokenizer."""
    there = request.getfixturevalue(name)
    model = AutoModelForCausalLM.from_pretrained(there)
    generator = torch.Generator().manual_seed(1)
    for layer in model.model.layers:
        for linear in (layer.self_attn.q_proj, layer.self_attn.v_proj, layer.mlp.down_proj):
            down = torch.randn(3, linear.in_features, generator=generator)
            up = torch.randn(linear.out_features, 3, generator=generator)
            linear.weight.data += 0.1 * up @ down
    tokenizer = AutoTokenizer.from_pretrained(there)
    model.save_pretrained(tmp_path / "merged")
    tokenizer.save_pretrained(tmp_path / "merged")
    succeed("convert", f"source={tmp_path}/merged", "to=runs/merged", cwd=tmp_path)
    opened = open_run(tmp_path / "runs/merged", "best")
    tokens = torch.tensor([opened.tokenizer.encode(ONCE)])
    assert tokens.tolist() == [tokenizer.encode(ONCE)]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, opened.model(tokens), rtol=2e-5, atol=2e-5)
    end = tokenizer.eos_token_id
    assert opened.tokenizer.eos_ids == ((end,) if name == "exported" else ())
    succeed("convert", "source=runs/merged", "to=merged.gguf", cwd=tmp_path)
    succeed("convert", "source=runs/merged", "to=again", cwd=tmp_path)
    for file in ("config.json", "generation_config.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / file).read_bytes() == (there / file).read_bytes(), file
    card = (tmp_path / "again/README.md").read_text(encoding="utf-8")
    assert "converted_from: merged\n" in card, "of a path, the last name"


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path) -> Path:
    """A folder in which transformers saved a random model, with a tokenizer of 300 tokens."""
    here = tmp_path_factory.mktemp("theirs")
    torch.manual_seed(3)
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 24, "n_positions": 32, "vocab_size": 300}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=299, eos_token_id=299))
    for parameter in model.parameters():
        parameter.data.add_(torch.randn(parameter.shape) * 0.1)
    model.save_pretrained(here / "theirs")
    write_tokenizer(open_run(tiny_run, "best").tokenizer, here / "theirs", 32)
    (here / "notes.txt").write_text("A cat saw a mouse.\nThe mouse ran to the barn!\n" * 40)
    return here


@pytest.fixture(scope="module")
def imported(theirs: Path) -> Path:
    """The same folder, with the model as a run in it."""
    printed = succeed("convert", "source=theirs", "to=runs/theirs", cwd=theirs)
    assert "parameters" in printed and "python sample.py run=runs/theirs" in printed
    return theirs


def test_it_is_a_run_like_any_other(imported: Path) -> None:
    text = succeed("sample", "run=runs/theirs", "prompt=Once", "max_new_tokens=9", cwd=imported)
    assert text.startswith("Once")
    page = ("text=A cat saw.", "html=page.html")
    assert "step 0" in succeed("look", "run=runs/theirs", *page, cwd=imported)
    assert "2 layers" in (imported / "page.html").read_text()
    assert "head*d_head" in succeed("shapes", "run=runs/theirs", cwd=imported)
    notes = ("data=text", "data.path=notes.txt")
    assert "all: " in succeed("evaluate", "run=runs/theirs", *notes, cwd=imported)


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("train", ["resume=runs/theirs"], "converted, not trained"),
        ("evaluate", ["run=runs/theirs"], "data: this run was converted and has no corpus"),
        ("convert", ["source=theirs", "to=runs/theirs"], "to: runs/theirs exists"),
        ("convert", ["source=theirs", "to=x.gguf"], "only a run becomes GGUF"),
        ("convert", ["source=.", "to=x"], "has no config.yaml and no config.json"),
        ("convert", ["source=theirs", "to=x", "dtype=q8_0"], "dtype: q8_0 is for GGUF"),
        ("convert", ["source=theirs", "to=runs/latest"], "to: runs/latest is reserved"),
    ],
)
def test_mistakes(imported: Path, script: str, arguments: list[str], words: str) -> None:
    assert_refused(imported, script, *arguments, words=words)


def assert_refused(cwd: Path, script: str, *arguments: str, words: str) -> None:
    before = files(cwd)
    done = command(script, *arguments, cwd=cwd)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1 and len(done.stderr) < 500
    assert files(cwd) == before


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    """A change of the tensors in a folder."""

    def apply(folder: Path) -> None:
        tensors = safetensors.torch.load_file(folder / WEIGHTS)
        change(tensors)
        safetensors.torch.save_file(tensors, folder / WEIGHTS)

    return apply


def renamed(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / WEIGHTS).rename(folder / name)


def grown(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"vocab_size": 300', '"vocab_size": 1000000000'))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (renamed("pytorch_model.bin"), "model.safetensors: is missing, or is not a file"),
        (renamed("model.fp16.safetensors"), "not a file; rename model.fp16.safetensors"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "merge_and_unload()"),
        (lambda folder: (folder / WEIGHTS).write_text(""), "cannot be read"),
        (weights(lambda all: all.update(virus=torch.ones(3))), "virus: is not a part of the model"),
        (weights(lambda all: all[sorted(all)[0]].fill_(torch.nan)), "not finite"),
        (grown, "has the shape"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json: "),
    ],
)
def test_files_from_strangers(
    theirs: Path, tmp_path: Path, harm: Callable[[Path], object], words: str
) -> None:
    shutil.copytree(theirs / "theirs", tmp_path / "folder")
    harm(tmp_path / "folder")
    assert_refused(tmp_path, "convert", "source=folder", "to=runs/x", words=words)


def test_a_name_on_the_hub_is_fetched_without_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "on the hub"
    there.mkdir()
    (there / "config.json").write_text('{"model_type": "bert"}')
    (there / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    (there / "modeling.py").write_text("raise SystemExit")

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        assert name == "someone/small"
        for file in there.iterdir():
            if not any(fnmatch(file.name, pattern) for pattern in allow_patterns):
                file.unlink()
        return str(there)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    done = command("convert", "source=someone/small", "to=imported", cwd=tmp_path)
    assert done.returncode == 2 and not (tmp_path / "imported").exists()
    assert "config.json: model_type: 'bert'" in done.stderr
    assert [file.name for file in there.iterdir()] == ["config.json"]


def test_a_network_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=r"^source: someone/other .*, and could not be fetched: "):
        fetch("someone/other")


def test_names_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("openai-community/gpt2")
    (tmp_path / "models").mkdir()
    for path in ("models/gpt2", "runs/latest", "gpt2", "a/b/c", "/a", "../a", "a/b c", "ä/b"):
        assert not is_hub_name(path), path
