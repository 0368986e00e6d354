"""The checkpoints of a run, and the command that branches off from one of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention
from tensorboard_attention.checkpoints import find_checkpoints
from tensorboard_attention.tests.conftest import Tab, causal_maps, log, once

NO_CLIPBOARD = "() => Object.defineProperty(navigator, 'clipboard', { value: undefined })"
READ_CLIPBOARD = "() => navigator.clipboard.readText()"


def save(folder: Path, *steps: int) -> Path:
    """Make the folder that of a run with these checkpoints."""
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").touch()
    for step in steps:
        (folder / f"checkpoints/step-{step:06d}").mkdir(parents=True)
    return folder


def test_steps_of_checkpoints(tmp_path: Path) -> None:
    run = save(tmp_path / "a run; $(touch x) 'y'", 500, 1500, 1_000_000)
    for other in ("best", "last", "step-000500-good", ".step-000700", "step-7"):
        (run / "checkpoints" / other).mkdir()
    found = find_checkpoints(run)
    assert found
    assert found["steps"] == [500, 1500, 1_000_000]
    assert shlex.split(found["command"]) == ["python", "train.py", f"branch={run}"]


def test_folders_that_are_no_run_to_branch_off_from(tmp_path: Path) -> None:
    elsewhere = save(tmp_path / "elsewhere", 5)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "config.yaml").symlink_to(elsewhere / "config.yaml")
    (linked / "checkpoints").symlink_to(elsewhere / "checkpoints")
    without = save(tmp_path / "without")
    # A paste into a terminal could end at such a character.
    control = save(tmp_path / "a\x1b[201~\nb", 5)
    folders = [tmp_path, linked, without, control, tmp_path / "none"]
    assert [find_checkpoints(folder) for folder in folders] == [None] * 5


@pytest.mark.parametrize("may_copy", [True, False])
def test_the_command_of_a_head_is_copied(
    logs: Path, open_tab: Callable[..., Tab], may_copy: bool
) -> None:
    """From the last checkpoint up to the step, and from none at the end of the training."""
    name = f"branched {may_copy}"
    with SummaryWriter(str(save(logs / name, 20, 40, 60))) as writer:
        for step in (10, 30, 60):
            tokens = [f"t{i}" for i in range(8)]
            add_attention(writer, "probe", causal_maps(step, n=8), tokens, step, last_step=60)
    tab = open_tab(run=name, step=30, layer=1, head=0)
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    if not may_copy:  # as on a page that came by plain HTTP from elsewhere
        tab["main"].evaluate(NO_CLIPBOARD)
    command = f"python train.py branch={shlex.quote(str(logs / name))}"
    button = tab["button:has-text('Train without')"]
    slider = tab["input[type=range] >> nth=0"]
    for place, step, head, checkpoint in ((1, 30, 0, 20), (2, 60, 0, 40), (0, 10, 1, 20)):
        slider.fill(str(place))
        tab.shown([name, "probe", step])
        tab[".grid button"].nth(2 + head).click()
        sync_api.expect(button).to_have_text(f"Train without L1H{head}")
        button.click()
        expected = f"{command} step={checkpoint} hold_off=L1H{head}"
        if may_copy:
            sync_api.expect(tab[".copied"]).to_contain_text("command copied")
            assert once(tab["main"], READ_CLIPBOARD, expected.__eq__) == expected
        else:
            sync_api.expect(tab[".copied input"]).to_have_value(expected)


def test_no_command_for_other_runs(logs: Path, open_tab: Callable[..., Tab]) -> None:
    log(logs / "constructor", 0)
    tab = open_tab(run="constructor")
    assert not tab["button:has-text('Train without')"].is_visible()
