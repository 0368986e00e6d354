"""The page that follows a run: it shows steps as they come, and a stranger's run is only data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from playwright import sync_api
from tensorboard.backend.security_validator import SecurityValidatorMiddleware
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from inference.opening import open_run
from live.following import page
from live.models import values_of
from live.pack import packed_bytes
from model import GPT
from store.results import head_names
from store.run import Run
from tensorboard_attention.naming import UNMEASURED, HeadName
from tensorboard_attention.plugin import AttentionPlugin
from tensorboard_attention.tests.conftest import HOSTILE, Tab, tensorboard
from tests.conftest import ROOT
from tests.live.drawn import build, means_over
from tests.live.pages import Live, check_names

TEXT = "Once there was a hen named Ida. Ida"


@pytest.fixture
def described(tiny_run: Path) -> dict[str, Any]:
    return json.loads((tiny_run / "live/model.json").read_text())


def test_the_page_runs_its_own_scripts_alone(described: dict[str, Any]) -> None:
    described["run"]["name"] = HOSTILE
    html, *_ = page(described, {0: "a"})
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', html)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["connect-src"] == "'self'" and rules["worker-src"] == "'self'"
    assert re.fullmatch(r"'sha256-\S+' 'sha256-\S+'", rules["script-src"])
    assert "<img" not in html and html.count("</script>") == 3  # the model, the code, the loader


def test_a_pattern_of_ones_own_is_refused(described: dict[str, Any]) -> None:
    described["tokenizer"]["pattern"] = "(?:a+)+$"
    with pytest.raises(ValueError, match="unknown pattern"):
        page(described, {0: "a"})


def test_a_run_without_a_description_has_no_page(run: Path) -> None:
    plugin = AttentionPlugin(TBContext(logdir=str(run.parent)))
    plugin.is_active()
    routes = plugin.get_plugin_apps()

    def followed() -> tuple[list[str], int]:
        runs = Client(routes["/runs"]).get().get_json(force=True)["followed"]
        return runs, Client(routes["/follow"]).get(query_string={"run": "run"}).status_code

    assert followed() == (["run"], 200)
    for text in ("{}", "[" * 100_000, "no JSON", "\udcff", "9" * 5000):
        (run / "live/model.json").write_text(text, errors="surrogateescape")
        assert followed()[1] == 404
    (run / "live/model.json").unlink()
    assert followed() == ([], 404)
    (run / "live/model.json").symlink_to(run / "config.yaml")
    assert followed() == ([], 404)


def test_tensorboard_accepts_the_headers_of_every_route(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By its own check, which warns of what will be an error."""
    plugin = AttentionPlugin(TBContext(logdir=str(run.parent)))
    plugin.is_active()
    asked = {"run": "run", "tag": "attention", "step": "6"}
    asked |= {f"{name}2": value for name, value in asked.items()}
    with caplog.at_level("WARNING", "tensorboard"):
        for app in plugin.get_plugin_apps().values():
            answer = Client(SecurityValidatorMiddleware(app)).get(query_string=asked)
            assert answer.status_code == 200
    assert caplog.messages == []


def test_tensorboard_needs_no_torch_for_it() -> None:
    code = "import sys, live.following; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


Begun = tuple[Path, dict[str, bytes]]


@pytest.fixture
def begun(run: Path) -> Begun:
    """The folder of the weights of a run that has written its first step, and the later ones."""
    live = run / "live"
    later = {name: (live / name).read_bytes() for name in ("3.bin", "6.bin")}
    for name in later:
        (live / name).unlink()
    return live, later


@pytest.fixture
def site(begun: Begun) -> str:
    """The address of a TensorBoard over the run."""
    return tensorboard(begun[0].parent.parent)


@pytest.fixture
def following(site: str, browser: sync_api.Browser) -> Iterator[Live]:
    """The page of the run. It requests only steps and weights."""
    address = f"{site}data/plugin/attention/follow"
    page = Live(browser, f"{address}?run=run")
    yield page
    page.page.context.close()
    assert page.errors == []
    assert all(each.startswith(address) for each in page.asked)


def write(file: Path, data: bytes) -> None:
    """Write a step as a run does."""
    temporary = file.with_name(f".{file.name}")
    temporary.write_bytes(data)
    temporary.replace(file)


def shows(page: Live, step: str) -> None:
    """Wait until it does."""
    page[f".stepper output:text-is('{step}')"].wait_for()
    page.settled()


def loss_becomes(page: Live, loss: float) -> None:
    """Wait until the page shows that mean loss of the text."""
    page.page.wait_for_function(
        "loss => Math.abs(document.querySelector('.next .sum b').textContent - loss) < 0.0015",
        arg=loss,
    )


def test_the_page_shows_steps_as_they_come(
    begun: Begun, site: str, following: Live, browser: sync_api.Browser
) -> None:
    (live, later), page = begun, following
    tab = Tab(browser, f"{site}#attention")
    link = tab["a:has-text('Your own text')"].evaluate("link => link.href")
    tab.close()
    assert page.page.url.partition("#")[0] == link
    box = page[".following input"]
    shows(page, "0")
    assert box.is_checked()
    page.type(TEXT)
    page.off("L")
    off = page[".offlist"].inner_text()
    page["button:has-text('Tour')"].click()
    page[".tour:has-text('best guess')"].wait_for()
    write(live / "3.bin", later["3.bin"])
    shows(page, "3 (2 of 2)")
    page[".goingon li:has-text('Step 3')"].wait_for()
    assert page[".goingon li button"].all_inner_texts() == ["Step 3", "Step 0"]
    assert "best guess" in page[".tour"].inner_text(), "a tour does not stop it"
    page[".tour button:has-text('Skip')"].click()
    page.settled()
    assert page["textarea"].input_value() == TEXT
    assert off and page[".offlist"].inner_text() == off
    assert box.is_checked() and "step=last" in page.page.evaluate("location.hash")
    page[".stepper input"].fill("0")
    shows(page, "0 (1 of 2)")
    assert not box.is_checked()
    write(live / "6.bin", later["6.bin"])
    shows(page, "0 (1 of 3)")
    assert not box.is_checked() and page["textarea"].input_value() == TEXT
    box.check()
    shows(page, "6 (3 of 3)")
    page.page.wait_for_function("() => location.hash.includes('step=last')")
    page.page.reload()
    shows(page, "6 (3 of 3)")
    page[".goingon li >> nth=2"].wait_for()
    assert page[".goingon li button"].all_inner_texts() == ["Step 6", "Step 3", "Step 0"]
    assert page["textarea"].input_value() == TEXT and box.is_checked()


def test_heads_have_the_names_of_each_step(run: Path, begun: Begun, following: Live) -> None:
    """As soon as the step is there, and again when they are measured over more documents."""
    (live, later), page = begun, following
    (run / "evidence.json").unlink()  # which names the heads of its step
    names = head_names(Run(run), (0, 3, 6))
    page.type(TEXT)
    check_names(page, names[0])
    for step, shown in ((3, "3 (2 of 2)"), (6, "6 (3 of 3)")):
        write(live / f"{step}.bin", later[f"{step}.bin"])
        shows(page, shown)
        check_names(page, names[step])
    names[6] = [[*layer] for layer in names[6]]
    names[6][0][0] = HeadName("copies 61%", "copies", "copies 61% here", "Of more text", 0.9)
    write(live / "names.json", json.dumps(names).encode())
    (live / "6.bin").touch()
    sync_api.expect(page[".grid .role >> nth=0"]).to_have_text("copies 61%")
    check_names(page, names[6])


def test_names_that_do_not_fit_the_model_are_none(run: Path, begun: Begun, following: Live) -> None:
    (live, later), page = begun, following
    (run / "evidence.json").unlink()
    names = head_names(Run(run), (3, 6))
    for step, wrong in ((3, names[3][:1]), (6, [[], *names[6]])):
        write(live / "names.json", json.dumps({step: wrong}).encode())
        write(live / f"{step}.bin", later[f"{step}.bin"])
        shows(page, f"{step} ({step // 3 + 1} of {step // 3 + 1})")
        check_names(page, [[UNMEASURED] * 2] * 2)
        assert page[".kinds"].is_hidden()


def drawn(like: GPT, ids: list[int], seed: int) -> tuple[bytes, float]:
    """Weights as a run writes them, and PyTorch's loss of a text with them."""
    model = build(like.config, like.vocab_size, seed)
    for parameter in model.parameters():
        parameter.copy_(parameter.half())
    logits = model(torch.tensor([ids[:-1]]))[0]
    loss = F.cross_entropy(logits, torch.tensor(ids[1:])).item()
    return packed_bytes(values_of(model, means_over(model, ids)), "float16"), loss


def test_the_page_computes_with_the_weights_of_its_step(
    run: Path, begun: Begun, following: Live
) -> None:
    (live, _), page, opened = begun, following, open_run(run, "last")
    ids = opened.tokenizer.encode("\n\n" + TEXT)
    (one, first), (two, second) = (drawn(opened.model, ids, seed) for seed in (1, 2))
    assert abs(first - second) > 0.1
    page.type(TEXT)
    write(live / "6.bin", one)
    loss_becomes(page, first)
    write(live / "6.bin", two)  # another training of the same steps
    loss_becomes(page, second)
    write(live / "3.bin", one)
    (live / "6.bin").unlink()  # a resume
    loss_becomes(page, first)
    shows(page, "3 (2 of 2)")
    assert page["textarea"].input_value() == TEXT and page[".following input"].is_checked()
    write(live / "6.bin", two)
    page[".stepper input"].fill("0")
    for step, loss in ((6, second), (3, first)):  # which are not shown
        line = page[f".goingon li:has-text('Step {step}') .loss"]
        sync_api.expect(line).to_have_text(f"{loss:.2f}")


def test_that_the_run_is_damaged_or_gone_or_its_server_is_told(
    begun: Begun, following: Live
) -> None:
    (live, later), notice = begun, following[".notice"]
    write(live / "3.bin", b"damaged")
    sync_api.expect(notice).to_contain_text("damaged")
    write(live / "6.bin", later["6.bin"])
    shows(following, "6 (3 of 3)")
    sync_api.expect(notice).to_have_text("")
    following.page.context.set_offline(True)
    sync_api.expect(notice).to_have_text("TensorBoard does not answer. Is it still running?")
    following.page.context.set_offline(False)
    sync_api.expect(notice).to_have_text("")
    for step in (0, 3, 6):
        (live / f"{step}.bin").unlink()
    sync_api.expect(notice).to_have_text("The weights are no longer in the log.")
    write(live / "6.bin", later["6.bin"])
    sync_api.expect(notice).to_have_text("")
    following.errors.clear()  # the browser logs each request that failed
