"""The page of a run as a file: look.py html=FILE writes what the run has, the page loads without a
network, the browser reads exactly its weights, and hostile texts are shown as text."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from playwright import sync_api
from tokenizers import normalizers

from common.errors import UserError
from inference.opening import OpenRun, each_checkpoint, open_run
from live.models import values_of
from live.pack import BYTES, MAX_BYTES, check_size, pack
from live.page import can_have_page, check_page, run_title
from live.texts import spare_text
from model import GPT, mean_outputs
from store.results import head_names
from store.run import Run
from tensorboard_attention.tests.conftest import HOSTILE
from tests.conftest import TINY, command, small_config, succeed
from tests.data.strings import trained
from tests.exchange.fast import imported
from tests.live.conftest import Call
from tests.live.pages import Live, data_in, element

OTHER_TEXT = ("data=text", "data.path=text.txt", "trainer.max_steps=1")
REST = [each for each in TINY if not each.startswith(("data", "trainer.max"))]


def page(run: Path, *settings: str, name: str = "live.html") -> Path:
    succeed("look", f"run={run.name}", f"html={name}", *settings, cwd=run.parent)
    return run.parent / name


def weights_of(opened: OpenRun, cache: Path, weights: str) -> str:
    """With the means with which Python switches parts off."""
    return pack(values_of(opened.model, opened.means(cache)), weights)


def test_the_page_describes_the_model_and_its_tokenizer(run: Path) -> None:
    run = run.rename(run.with_name("2026-01-02_03-04-05"))
    file, opened = page(run), open_run(run, "last")
    data = data_in(file)
    config = data["config"]
    assert config.pop("vocab_size") == opened.model.vocab_size
    assert config == vars(opened.config.model)
    assert data["steps"] == [6] and data["weights"] == "float16"
    assert element(file, "weights-0") == weights_of(opened, run.parent / ".cache", "float16")
    *shapes, heads, mlps = data["parameters"]
    assert shapes == [[name, [*each.shape]] for name, each in opened.model.named_parameters()]
    width = opened.model.config.d_model
    assert [heads, mlps] == [["means.heads", [4, width // 2]], ["means.mlps", [2, width]]]
    assert re.search(r"validation documents \([\d,]+ tokens\)", data["run"]["means"])
    assert data["run"]["name"] == "tales, 6 steps" and "<title>tales, 6" in file.read_text()
    count = opened.model.n_parameters
    greeting, figures = data["run"]["about"].splitlines()
    assert greeting == f"A storyteller of {count:,} parameters; it runs in this tab."
    assert figures.startswith(f"2 layers of 2 heads, {count:,} parameters; data: tales; ")
    tokenizer = data["tokenizer"]
    assert tokenizer["name"] == "bpe" and tokenizer["document_end"] == "\n\n"
    assert len(tokenizer["tokens"]) == opened.tokenizer.vocab_size


def test_all_checkpoints_begin_with_the_initial_weights(tmp_path: Path) -> None:
    """A step that changes nothing leaves the initial weights in the first checkpoint."""
    still = ("optimizer=adamw", "optimizer.lr=1e-38", "optimizer.weight_decay=0")
    settings = (*TINY, "trainer.max_steps=2", "trainer.checkpoint_every=1", "seed=5", *still)
    succeed("train", "run_dir=run", *settings, cwd=tmp_path)
    file = page(tmp_path / "run", "checkpoints=all", "weights=float32")
    assert data_in(file)["steps"] == [0, 1, 2]
    last = weights_of(open_run(tmp_path / "run", "last"), tmp_path / ".cache", "float32")
    assert element(file, "weights-0") == element(file, "weights-1") == last


def test_each_step_has_its_weights_and_names(tiny_run: Path, site_file: Path) -> None:
    names = head_names(Run(tiny_run), (0, 3, 6))
    assert data_in(site_file)["names"] == json.loads(json.dumps(names))
    weights = [element(site_file, f"weights-{place}") for place in range(3)]
    for checkpoint, expected in zip(each_checkpoint(open_run(tiny_run)), weights[1:], strict=True):
        cache = tiny_run.parent.parent / ".cache"
        assert weights_of(checkpoint, cache, "float32") == expected
    assert len({*weights}) == 3


def test_a_run_without_its_text_has_a_page(run: Path) -> None:
    """It was converted, or its file is elsewhere now."""
    text = run.parent / "text.txt"
    text.write_text("".join(f"Hen {i} looked for hen {i + 1}.\n" for i in range(900)))
    succeed("train", "run_dir=text", *REST, *OTHER_TEXT, cwd=run.parent)
    data = data_in(page(run.parent / "text"))
    start, _ = open_run(run.parent / "text", "last").tokenizer.beginning()
    begins = [data["tokenizer"][name] for name in ("start_ids", "adds_start")]
    assert begins == [start, False] and start, "no text of one's own begins with these tokens"
    metadata = data["run"]
    assert metadata["prompt"] in text.read_text()[-4000:], "it was not trained on that"
    assert re.search(r"[\d,]+ tokens.* of validation text", metadata["means"])
    text.unlink()
    done = command("look", "run=text", "html=lost.html", cwd=run.parent)
    *_, note = done.stderr.splitlines()
    assert done.returncode == 0
    assert note.startswith("note: the page has a tale in place") and "text.txt" in note
    metadata = data_in(run.parent / "lost.html")["run"]
    assert metadata["prompt"] and re.fullmatch(r"a tale \(\d+ tokens\)", metadata["means"])
    opened = open_run(run.parent / "text", "last")
    ids = opened.tokenizer.encode_document(spare_text(opened.tokenizer, 32))[:32]
    means = mean_outputs(opened.model, [(torch.tensor([ids]), torch.tensor([ids]))])
    found = element(run.parent / "lost.html", "weights-0")
    assert found == pack(values_of(opened.model, means), "float16")

    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump({"model": config["model"], "data": None}))
    data = data_in(page(run, "checkpoints=all", name="converted.html"))
    assert data["steps"] == [3, 6]


def test_a_title_is_no_date() -> None:
    dated, swept = Path("runs/2026-01-02_03-04-05-2"), Path("runs/0_model.d_model=64")
    assert run_title("tiny", dated, "tales", 1000) == "tiny"
    assert run_title(None, dated, "tales", 1000) == "tales, 1,000 steps"
    assert run_title(None, swept, "tales", 1000) == swept.name
    assert run_title(None, dated, None, 1000) == dated.name, "it was converted"


def test_the_page_can_request_nothing(site_file: Path) -> None:
    """Nor can its worker, a Blob, which has the policy of the page."""
    page = site_file.read_text("utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert dict(rule.split(" ", 1) for rule in policy.split("; ")) == {
        "default-src": "'none'",
        "script-src": "'unsafe-inline'",
        "worker-src": "blob:",
        "style-src": "'unsafe-inline'",
        "img-src": "blob: data:",
    }


def test_hostile_texts_are_only_texts(tmp_path: Path, browser: sync_api.Browser) -> None:
    """In tokens, in the first text and in the name of the run."""
    name = "run <img src=x onerror=document.title=3> &amp;"
    (tmp_path / "text.txt").write_text(f"A hen {HOSTILE} and \u202e a hat.\n" * 400)
    succeed("train", *REST, *OTHER_TEXT, f"name={name}", cwd=tmp_path)
    succeed("look", f"run=runs/{name}", "html=live.html", cwd=tmp_path)
    live = Live(browser, (tmp_path / "live.html").as_uri())
    assert live.page.title() == name and live["h1"].inner_text() == name
    assert live["img"].count() == 0
    live.close()


def test_what_names_the_page_at_the_end_of_a_run() -> None:
    model = GPT(small_config(1, 1, 4, 8), 400)
    assert can_have_page(model, trained())
    with pytest.raises(UserError, match=r"^run: model\.mlp: relu2 is unknown to a live page"):
        check_page(GPT(small_config(1, 1, 4, 8, mlp="relu2"), 400), trained())
    normalizing = imported(trained(), normalizer=normalizers.NFC())
    assert not can_have_page(model, normalizing)
    with torch.device("meta"):
        assert not can_have_page(GPT(small_config(12, 12, 3072, 8), 50257), trained())


def test_a_page_that_is_too_large_is_refused() -> None:
    most = int(MAX_BYTES * 3 / 4 / 2)
    for n_checkpoints in (1, 5):
        check_size(most // n_checkpoints, n_checkpoints, "float16")
        check_size(2 * most // n_checkpoints, n_checkpoints, "int8")
        with pytest.raises(UserError, match=r"^weights: .* 201 MB, .* weights=int8"):
            check_size(most // n_checkpoints + 500_000 // n_checkpoints, n_checkpoints, "float16")


READ = """async ({ unpack }, { data, text }) => {
    const tensors = await unpack(data, text);
    return Object.entries(tensors).map(([name, values]) =>
        [name, Array.from(new Uint32Array(values.slice().buffer))]);
}"""


def array(values: object) -> np.ndarray:
    return np.array(values, np.float32)


def tensors() -> dict[str, np.ndarray]:
    """Ordinary weights, all 16-bit numbers, and the odd ones: zeros of both signs, rows of zeros,
    the smallest and the largest numbers."""
    rng = np.random.default_rng(0)
    info = np.finfo(np.float32)
    odd = array([[0, -0.0, 1, -1], [0, 0, 0, 0], [65504, -65504, 6e-8, 5.9e-8]])
    halves = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    tiny = array([[info.smallest_subnormal, 0], [info.tiny, -info.tiny], [1e-42, -1e-45]])
    return {
        "matrix": rng.normal(size=(7, 5)).astype(np.float32),
        "vector": rng.normal(size=9).astype(np.float32),
        "odd": odd,
        "halves": halves[np.isfinite(halves)].astype(np.float32),
        "tiny": tiny,
        "bias": array([0, -0.0, 2048.5, 1e-7, 65519]),
        "row": rng.normal(size=(1, 300)).astype(np.float32),
        "column": rng.normal(size=(300, 1)).astype(np.float32),
    }


def rounded(given: dict[str, np.ndarray], weights: str) -> dict[str, np.ndarray]:
    """The float32 values that the page reads from `pack(given, weights)`."""

    def value(tensor: np.ndarray) -> np.ndarray:
        if weights == "int8" and tensor.ndim > 1:
            scales = np.abs(tensor).max(1, keepdims=True) / np.float32(127)
            whole = np.divide(tensor, scales, out=np.zeros_like(tensor), where=scales > 0)
            return np.rint(whole).clip(-127, 127).astype(np.int8) * scales
        kind = np.float16 if weights == "float16" else np.float32
        return tensor.astype(kind).astype(np.float32)

    return {name: value(tensor) for name, tensor in given.items()}


def described(given: dict[str, np.ndarray], weights: str) -> dict[str, Any]:
    shapes = [[name, list(each.shape)] for name, each in given.items()]
    return {"parameters": shapes, "weights": weights}


@pytest.mark.parametrize("weights", BYTES)
def test_the_browser_reads_exactly_these_weights(module: Call, weights: str) -> None:
    given = tensors()
    found = module(
        "weights.js", READ, {"data": described(given, weights), "text": pack(given, weights)}
    )
    expected = rounded(given, weights)
    assert [name for name, _ in found] == [*expected]
    for name, bits in found:
        wanted = expected[name].reshape(-1).view(np.uint32)
        assert np.array_equal(np.array(bits, np.uint32), wanted), name


@pytest.mark.parametrize(("weights", "most"), [("float16", 2.3), ("int8", 1.3), ("float32", 5)])
def test_a_weight_takes_as_many_bytes_as_the_guide_says(weights: str, most: float) -> None:
    matrix = np.random.default_rng(0).normal(0, 0.05, (1000, 800)).astype(np.float32)
    assert len(pack({"matrix": matrix}, weights)) / matrix.size <= most


def test_a_number_too_large_for_16_bits_is_refused() -> None:
    given = {"blocks.0.mlp.up.weight": array([[1, 65520]])}
    with pytest.raises(UserError, match=r"^weights: float16 .* blocks.0.mlp.up.weight"):
        pack(given, "float16")


@pytest.mark.parametrize("weights", BYTES)
def test_damaged_weights_are_an_error(module: Call, weights: str) -> None:
    given = tensors()
    text = pack(given, weights)
    data = base64.b64decode(text)
    for damaged in (data[:-9], data[:40], pack({"a": array([1.0])}, weights).encode()):
        text = base64.b64encode(damaged).decode()
        failed = module(
            "weights.js",
            "({ unpack }, { data, text }) => unpack(data, text).then(() => false, () => true)",
            {"data": described(given, weights), "text": text},
        )
        assert failed
