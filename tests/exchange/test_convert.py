"""`convert.py` from the command line: both directions, what others see, and every mistake."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from tokenizers import AddedToken
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Tokenizer,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from exchange.merges import spell
from exchange.tokenizer import write_tokenizer
from inference.opening import open_run
from tests.conftest import ROOT, TINY, begin, command, files, succeed

ONCE = "Once there was a hen."


@pytest.fixture(scope="module")
def tales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose tokenizer has a token for the end of a tale."""
    folder = tmp_path_factory.mktemp("tales")
    succeed("train", *TINY, "tokenizer.vocab_size=400", "run_dir=runs/tales", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def exported(tales: Path) -> Path:
    """The run as a folder of transformers."""
    succeed("convert", "source=runs/latest", "to=a story teller", cwd=tales)
    return tales / "a story teller"


def test_a_run_opens_in_transformers(tales: Path, exported: Path) -> None:
    opened = open_run(tales / "runs/tales", "best")
    model = AutoModelForCausalLM.from_pretrained(exported)
    tokenizer = AutoTokenizer.from_pretrained(exported)
    assert [model.generation_config.eos_token_id] == opened.tokenizer.encode("\n\n")
    tokens = tokenizer(ONCE, return_tensors="pt")["input_ids"]
    assert tokens.tolist() == [opened.tokenizer.encode(ONCE)]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, opened.model(tokens), rtol=2e-5, atol=2e-5)
    assert tokenizer.decode(tokens[0]) == ONCE


def test_transformers_writes_the_same_text(tales: Path, exported: Path) -> None:
    ours = succeed(
        "sample", "temperature=0", "prompt=Once", "max_new_tokens=20", "checkpoint=best", cwd=tales
    )
    model = AutoModelForCausalLM.from_pretrained(exported)
    tokenizer = AutoTokenizer.from_pretrained(exported)
    tokens = tokenizer("\n\nOnce", return_tensors="pt")
    text = model.generate(**tokens, max_new_tokens=20, do_sample=False)
    assert tokenizer.decode(text[0], skip_special_tokens=True).lstrip("\n") == ours.rstrip("\n")


def test_the_model_card_says_what_the_model_is(tales: Path, exported: Path) -> None:
    card = (exported / "README.md").read_text(encoding="utf-8")
    assert "for 6 steps" in card and "name: tales" in card and "n_heads" in card
    run_card(exported)


def run_card(folder: Path) -> None:
    """Run the code in the model card."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    (code,) = [each.partition("```")[0] for each in card.split("```python\n")[1:]]
    here = Path.cwd()
    os.chdir(folder)
    try:
        exec(code, {})
    finally:
        os.chdir(here)


def test_a_document_that_ends_with_several_tokens_is_ended_by_its_text(
    tiny: Path, tmp_path: Path
) -> None:
    succeed("convert", f"to={tmp_path / 'there'}", cwd=tiny)  # its tokenizer has 300 tokens
    assert AutoTokenizer.from_pretrained(tmp_path / "there").eos_token is None
    run_card(tmp_path / "there")
    assert 'stop_strings=["\\n\\n"]' in (tmp_path / "there/README.md").read_text()


def test_dtype(tales: Path, tmp_path: Path) -> None:
    succeed("convert", f"to={tmp_path / 'there'}", "dtype=bfloat16", "checkpoint=last", cwd=tales)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "there")
    assert model.dtype == torch.bfloat16


def test_there_and_back(tales: Path, exported: Path, tmp_path: Path) -> None:
    succeed("convert", f"source={exported}", "to=runs/back", cwd=tmp_path)
    before, after = (
        open_run(tales / "runs/tales", "best"),
        open_run(tmp_path / "runs/back", "best"),
    )
    assert after.config.model == before.config.model
    assert after.tokenizer.encode(ONCE) == before.tokenizer.encode(ONCE)
    for mine, other in zip(before.model.parameters(), after.model.parameters(), strict=True):
        assert torch.equal(mine, other)
    succeed("convert", "source=runs/back", "to=again", cwd=tmp_path)
    for name in ("model.safetensors", "config.json", "tokenizer.json", "generation_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (exported / name).read_bytes(), name
    card = (tmp_path / "again/README.md").read_text(encoding="utf-8")
    assert "converted_from: a story teller\n" in card, "of a path, the last name"


@pytest.mark.long
def test_names_of_targets(tales: Path, tmp_path: Path) -> None:
    """A GGUF file is known by its name in any case, folders on the way are made, and ~ is home."""
    for target in ("deep/er/a b.GGUF", "~/in home"):
        arguments = ("source=runs/tales", f"to={tmp_path / target if target[0] != '~' else target}")
        done = command("convert", *arguments, cwd=tales, HOME=str(tmp_path))
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "deep/er/a b.GGUF").is_file()
    assert (tmp_path / "in home/config.json").is_file()


def test_a_target_inside_the_source_is_refused(tales: Path) -> None:
    arguments = ("source=runs/tales", "to=runs/tales/there")
    assert_refused(tales, "convert", *arguments, words="is inside source")


@pytest.mark.long
@pytest.mark.parametrize("target", ["there", "there.gguf"])
def test_a_full_disk(tales: Path, tmp_path: Path, target: str) -> None:
    arguments = ["source=runs/tales", f"to={tmp_path / 'new' / target}"]
    done = subprocess.run(
        [
            "bash",
            "-c",
            'ulimit -f 20; exec "$@"',
            "-",
            sys.executable,
            ROOT / "convert.py",
            *arguments,
        ],
        cwd=tales,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "File too large" in line or "No space left" in line
    assert "resume" not in line
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_two_conversions_to_one_target(tales: Path, tmp_path: Path) -> None:
    """One of them wins, and its files are not mixed with those of the other."""
    there = tmp_path / "new/there"
    script = str(ROOT / "convert.py")
    arguments = (script, "source=runs/tales", f"to={there}")
    started = [begin(*arguments, f"dtype={each}", cwd=tales) for each in ("float32", "bfloat16")]
    printed = [process.communicate(timeout=300)[1] for process in started]
    assert sorted(process.returncode for process in started) == [0, 2]
    (error,) = [text for text in printed if "error: " in text]
    assert f"error: to: {there} exists" in error
    config = json.loads((there / "config.json").read_text())
    assert AutoModelForCausalLM.from_pretrained(there).dtype == getattr(torch, config["dtype"])
    assert list((tmp_path / "new").iterdir()) == [there]


# -- models that transformers itself saved --

SMALL = {
    **{"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 4, "vocab_size": 300},
    **{"num_hidden_layers": 2, "num_key_value_heads": 2, "max_position_embeddings": 32},
    **{"bos_token_id": None, "eos_token_id": 299},
}
GPT2 = {
    **{"n_layer": 2, "n_head": 3, "n_embd": 24, "n_positions": 32, "vocab_size": 300},
    **{"bos_token_id": 299, "eos_token_id": 299},
}
THEIRS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "gpt2": (GPT2LMHeadModel, GPT2Config, GPT2),
    "llama": (LlamaForCausalLM, LlamaConfig, SMALL),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {**SMALL, "head_dim": 6}),
}


@pytest.fixture(scope="module", params=THEIRS)
def theirs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_run: Path
) -> Path:
    """A folder in which transformers saved a random model, with a tokenizer of 300 tokens."""
    here = tmp_path_factory.mktemp("theirs")
    torch.manual_seed(3)
    kind, config, values = THEIRS[request.param]
    model = kind(config(**values))
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


def test_its_loss_is_that_of_transformers(imported: Path) -> None:
    printed = succeed(
        "evaluate", "run=runs/theirs", "data=text", "data.path=notes.txt", cwd=imported
    )
    opened = open_run(imported / "runs/theirs", "best")
    model = AutoModelForCausalLM.from_pretrained(imported / "theirs").eval()
    text = (imported / "notes.txt").read_text()
    tokens = np.array(opened.tokenizer.encode(text), dtype=np.uint16)
    total = torch.zeros((), dtype=torch.float64)
    for start in range(0, len(tokens) - 1, 32):  # windows that do not overlap
        window = torch.from_numpy(tokens[start : start + 33].astype(np.int64))[None]
        with torch.no_grad():
            logits = model(window[:, :-1]).logits.double()
        losses = torch.nn.functional.cross_entropy(logits[0], window[0, 1:], reduction="sum")
        total += losses
    expected = total.item() / (len(tokens) - 1)
    assert f"all: {expected:.4f} nats per token" in printed


def test_it_is_a_run_like_any_other(imported: Path) -> None:
    text = succeed("sample", "run=runs/theirs", "prompt=Once", "max_new_tokens=9", cwd=imported)
    assert text.startswith("Once")
    page = ("text=A cat saw.", "html=page.html")
    assert "step 0" in succeed("look", "run=runs/theirs", *page, cwd=imported)
    assert (
        "3 layers" in (imported / "page.html").read_text()
        or "2 layers" in (imported / "page.html").read_text()
    )
    assert [*(imported / "runs/theirs").glob("events.*")]
    assert "head*d_head" in succeed("shapes", "run=runs/theirs", cwd=imported)


def test_added_tokens_that_are_not_special(tmp_path: Path) -> None:
    """Qwen3's <think>: in a run, in the corpus of its finetuning, and in the folder made of it."""
    base = Qwen2Tokenizer(vocab={spell(bytes([b])): b for b in range(256)}, merges=[])
    names = ["<|im_start|>", "<|im_end|>"]
    base.add_tokens([AddedToken(each, special=True) for each in names], special_tokens=True)
    base.add_tokens([AddedToken(each, normalized=False) for each in ("<think>", "</think>")])
    base.eos_token = "<|im_end|>"
    base.save_pretrained(tmp_path / "theirs")
    sizes = {**THEIRS["qwen3"][2], "eos_token_id": base.eos_token_id}
    Qwen3ForCausalLM(Qwen3Config(**sizes)).save_pretrained(tmp_path / "theirs")
    text = "<|im_start|>e\u0301<think>\u0338\n</think> hen" * 99
    (tmp_path / "notes.txt").write_text(text)

    succeed("convert", "source=theirs", "to=runs/theirs", cwd=tmp_path)
    data = ("data=text", "data.path=notes.txt", "trainer.max_steps=1", "trainer.batch_size=1")
    succeed("train", "init_from=runs/theirs", *data, "run_dir=runs/fine", cwd=tmp_path)
    succeed("convert", "source=runs/fine", "to=again", cwd=tmp_path)
    for run, folder in (("runs/theirs", "theirs"), ("runs/fine", "again")):
        fast = AutoTokenizer.from_pretrained(tmp_path / folder, split_special_tokens=True)
        tokenizer = open_run(tmp_path / run, "last").tokenizer
        ids = tokenizer.encode(text)
        assert fast(text)["input_ids"] == ids
        assert ids.count(fast.convert_tokens_to_ids("<think>")) == 99
        assert fast.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids)


@pytest.mark.long
@pytest.mark.parametrize(
    ("theirs", "name"),
    [("gpt2", "hf g é"), ("llama", "it's $HOME ${x}"), ("qwen3", 'a,b=[c]{d} "e"')],
    indirect=["theirs"],
)
def test_commands_in_messages_work_in_a_shell(imported: Path, tmp_path: Path, name: str) -> None:
    """What convert.py says to try, and what the resume of a converted run says."""
    shutil.copytree(imported / "theirs", tmp_path / f"of {name}")
    shutil.copy(imported / "notes.txt", tmp_path)

    def shell(script: str, said: str, *more: str) -> str:
        line = shlex.join([sys.executable, str(ROOT / script)])
        done = subprocess.run(
            ["bash", "-c", f"{line} {said} {shlex.join(more)}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    refused = command("sample", f"run=of {name}", cwd=tmp_path)
    _, _, advice = refused.stderr.strip().partition("python convert.py ")
    for word, path in (("MODEL", f"of {name}"), ("runs/NAME", f"runs/{name}")):
        advice = advice.replace(word, shlex.quote(path))
    printed = shell("convert.py", advice)
    _, _, hint = printed.strip().partition("Try: python sample.py ")
    assert shell("sample.py", hint, "max_new_tokens=3").startswith("Once")
    refused = command("train", f"resume=runs/{name}", cwd=tmp_path)
    _, _, advice = refused.stderr.strip().partition("finetune it with ")
    assert advice.startswith("init_from=")
    settings = ("data=text", "data.path=notes.txt", "trainer.max_steps=1", "trainer.batch_size=1")
    assert "runs/new" in shell("train.py", advice, *settings, "run_dir=runs/new")


@pytest.mark.parametrize("theirs", ["gpt2"], indirect=True)
@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("train", ["resume=runs/theirs"], "converted, not trained"),
        ("evaluate", ["run=runs/theirs"], "data: this run was converted and has no corpus"),
        ("shapes", ["run=runs/theirs", "model=nano"], "model: is that of the run"),
        ("convert", ["source=theirs", "to=runs/theirs"], "to: runs/theirs exists"),
        ("convert", ["source=theirs", "to=x.gguf"], "only a run becomes GGUF"),
        ("convert", ["source=theirs", "to=notes.txt/x"], "to: "),
        ("convert", ["source=nowhere", "to=x"], "source: nowhere does not exist"),
        ("convert", ["source=.", "to=x"], "has no config.yaml and no config.json"),
        ("convert", ["source=theirs", "to=x", "dtype=int8"], "dtype: 'int8' is unknown"),
        ("convert", ["source=theirs", "to=x", "dtype=q8_0"], "dtype: q8_0 is for GGUF"),
        ("convert", ["source=runs/theirs", "to=x", "checkpoint=first"], "checkpoint: 'first'"),
        ("convert", ["source=theirs", "to=x", "checkpoint=last"], "checkpoint: theirs is no run"),
        ("convert", ["source=theirs", "to=runs/latest"], "to: runs/latest is reserved"),
        ("convert", ["source=theirs", "to=./runs/../runs/latest/"], "is reserved"),
        ("convert", ["source=theirs", "to=x", "dtype=float16,float32"], "choose one of float32"),
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
        file = folder / "model.safetensors"
        tensors = safetensors.torch.load_file(file)
        change(tensors)
        safetensors.torch.save_file(tensors, file)

    return apply


def settings(**changes: object) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return apply


def text(name: str, contents: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(contents)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def only_first(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])


def pipe(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")


@pytest.mark.parametrize("theirs", ["gpt2"], indirect=True)
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (pickled, "model.safetensors: is missing, or is not a file"),
        (only_first, "model.safetensors: cannot be read"),
        (pipe, "model.safetensors: is missing, or is not a file"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors: is missing"),
        (text("model.safetensors", ""), "model.safetensors: cannot be read"),
        (weights(lambda all: all.pop(sorted(all)[3])), "is missing among the weights"),
        (weights(lambda all: all.update(virus=torch.ones(3))), "virus: is not a part of the model"),
        (weights(lambda all: each(all, lambda one: one[:-1])), "has the shape"),
        (
            weights(lambda all: each(all, lambda one: one.to(torch.int32))),
            "not finite floating-point numbers",
        ),
        (weights(lambda all: each(all, lambda one: one * torch.nan)), "not finite"),
        (settings(vocab_size=10**9), "has the shape"),
        (settings(model_type="bert"), "config.json: model_type: 'bert' cannot be converted"),
        (settings(n_layer=99), "is missing among the weights"),
        (text("config.json", "[" * 10**5), "config.json: nested too deeply"),
        (text("config.json", "no"), "config.json: "),
        (text("tokenizer.json", "{}"), "tokenizer.json: "),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json: is missing"),
    ],
)
def test_files_from_strangers(
    theirs: Path, tmp_path: Path, harm: Callable[[Path], object], words: str
) -> None:
    shutil.copytree(theirs / "theirs", tmp_path / "folder")
    harm(tmp_path / "folder")
    assert_refused(tmp_path, "convert", "source=folder", "to=runs/x", words=words)


def each(tensors: dict[str, torch.Tensor], change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change the first tensor."""
    name = sorted(tensors)[0]
    tensors[name] = change(tensors[name]).contiguous()


def test_what_no_family_is(tmp_path: Path) -> None:
    succeed("train", *TINY, "model.position=learned", "run_dir=run", cwd=tmp_path)
    for target in ("folder", "file.gguf"):
        words = "model.position: learned together with rmsnorm"
        assert_refused(tmp_path, "convert", "source=run", f"to={target}", words=words)
