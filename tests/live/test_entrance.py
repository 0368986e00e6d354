"""look.py html=FILE: what is in the page of a run, and when there is none."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from data.corpora import open_corpus
from data.corpus import text_of
from inference.opening import open_run
from live.texts import spare_text
from model import mean_outputs
from tests.conftest import TINY, command, succeed
from tests.live.pages import data_in, rounded, weights_in


def page(run: Path, *settings: str, name: str = "live.html") -> Path:
    succeed("look", f"run={run.name}", f"html={name}", *settings, cwd=run.parent)
    return run.parent / name


def stored(run: Path, step: int) -> dict[str, np.ndarray]:
    file = run / f"checkpoints/step-{step:06d}/model.safetensors"
    return {name: each.numpy() for name, each in load_file(file).items()}


def test_the_page_describes_the_model_and_its_tokenizer(run: Path) -> None:
    file = page(run)
    data = data_in(file)
    opened = open_run(run, "last")
    config = data["config"]
    assert config.pop("vocab_size") == opened.model.vocab_size
    assert config == vars(opened.config.model)
    assert data["steps"] == [6] and data["weights"] == "float16"
    *shapes, heads, mlps = data["parameters"]
    assert shapes == [[name, [*each.shape]] for name, each in opened.model.named_parameters()]
    width = opened.model.config.d_model
    assert [heads, mlps] == [["means.heads", [4, width // 2]], ["means.mlps", [2, width]]]
    assert data["run"]["name"] == run.name and f"<title>{run.name}</title>" in file.read_text()
    dated = run.rename(run.with_name("2026-01-02_03-04-05"))
    assert data_in(page(dated, name="dated.html"))["run"]["name"] == "tales, 6 steps"
    count = opened.model.n_parameters
    greeting, figures = data["run"]["about"].splitlines()
    assert greeting == f"A storyteller of {count:,} parameters; it runs in this tab."
    assert figures.startswith(f"2 layers of 2 heads, {count:,} parameters; data: tales; ")
    tokenizer = data["tokenizer"]
    assert tokenizer["name"] == "bpe" and tokenizer["document_end"] == "\n\n"
    assert len(tokenizer["tokens"]) == opened.tokenizer.vocab_size


@pytest.mark.parametrize("weights", ["float32", "float16"])
def test_the_weights_are_those_of_the_checkpoint(run: Path, weights: str) -> None:
    """And the means are those with which Python switches parts off."""
    found = weights_in(file := page(run, f"weights={weights}"), 0)
    opened = open_run(run, "last")
    means = opened.means(run.parent / ".cache")
    heads = [means[layer, head] for layer in range(2) for head in range(2)]
    tensors = stored(run, 6)
    tensors["means.heads"] = torch.stack(heads).numpy()
    tensors["means.mlps"] = torch.stack([means[f"mlp {layer}"] for layer in range(2)]).numpy()
    expected = rounded(tensors, weights)
    assert re.search(r"validation documents \([\d,]+ tokens\)", data_in(file)["run"]["means"])
    assert {*found} == {*expected}
    for name, values in expected.items():
        assert np.array_equal(found[name].view(np.uint32), values.view(np.uint32)), name


def test_all_checkpoints_begin_with_the_initial_weights(tmp_path: Path) -> None:
    """A step that changes nothing leaves the initial weights in the first checkpoint."""
    still = ("optimizer=adamw", "optimizer.lr=1e-38", "optimizer.weight_decay=0")
    settings = (*TINY, "trainer.max_steps=2", "trainer.checkpoint_every=1", "seed=5", *still)
    succeed("train", "run_dir=run", *settings, cwd=tmp_path)
    file = page(tmp_path / "run", "checkpoints=all", "weights=float32")
    assert data_in(file)["steps"] == [0, 1, 2]
    initial = weights_in(file, 0)
    kept = stored(tmp_path / "run", 1)
    assert {*initial} == {*kept, "means.heads", "means.mlps"}
    for name, values in kept.items():
        assert np.array_equal(initial[name].view(np.uint32), values.view(np.uint32)), name


def test_the_texts_were_not_trained_on(run: Path) -> None:
    opened = open_run(run, "last")
    metadata = data_in(page(run))["run"]
    data = opened.corpus()
    assert data is not None
    held_out = "".join(text_of(open_corpus(data), "val"))
    for text in (metadata["prompt"], *metadata["examples"].values()):
        assert f"\n\n{text}" in f"\n\n{held_out}", "it begins with a tale"
        assert 0 < len(opened.tokenizer.encode(text)) <= opened.config.model.context_length


def test_a_run_without_its_text_has_a_page(run: Path) -> None:
    """It was converted, or its file is elsewhere now."""
    text = run.parent / "text.txt"
    text.write_text("".join(f"Hen {i} looked for hen {i + 1}.\n" for i in range(900)))
    settings = ("data=text", "data.path=text.txt", "trainer.max_steps=1")
    rest = [each for each in TINY if not each.startswith(("data", "trainer.max"))]
    succeed("train", "run_dir=text", *rest, *settings, cwd=run.parent)
    metadata = data_in(page(run.parent / "text"))["run"]
    assert metadata["prompt"] in text.read_text()
    assert re.search(r"[\d,]+ tokens.* of validation text", metadata["means"])
    text.unlink()
    done = command("look", "run=text", "html=lost.html", cwd=run.parent)
    *_, note = done.stderr.splitlines()
    assert done.returncode == 0
    assert note.startswith("note: the page has a tale in place") and "text.txt" in note
    metadata = data_in(run.parent / "lost.html")["run"]
    assert metadata["prompt"] and re.fullmatch(r"a tale \(\d+ tokens\)", metadata["means"])
    found = weights_in(run.parent / "lost.html", 0)
    opened = open_run(run.parent / "text", "last")
    ids = opened.tokenizer.encode_document(spare_text(opened.tokenizer, 32))[:32]
    mean = mean_outputs(opened.model, [(torch.tensor([ids]), torch.tensor([ids]))])["mlp 1"]
    np.testing.assert_allclose(found["means.mlps"][1], mean, atol=1e-2)

    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump({"model": config["model"], "data": None}))
    data = data_in(page(run, "checkpoints=all", name="converted.html"))
    assert data["steps"] == [3, 6]
