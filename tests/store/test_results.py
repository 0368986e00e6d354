"""Rows of finished runs, their comparison by seed, and compare.py."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from common.errors import UserError
from data.batches import EvalBatches
from store.comparison import (
    compare,
    compare_by,
    group,
    margin,
    notes,
    roles,
    scored_texts,
    seconds_to,
    summary_lines,
    target_loss,
)
from store.results import find_runs, results
from tests.conftest import command, configure, succeed


def row(seed: int, bpb: float, **settings: Any) -> dict[str, Any]:
    rest = {"curve": [], "seconds": 1.0, "parameters": 1, "model.qk_norm": True}
    return {"seed": seed, "val_bpb": bpb, **rest, **settings}


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=60))
def test_the_margin_is_that_of_students_t(values: list[float]) -> None:
    freedom = len(values) - 1
    expected = stats.t.ppf(0.975, freedom) * np.std(values, ddof=1) / math.sqrt(len(values))
    assert margin(values) == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_runs_that_differ_in_the_seed_alone_are_one_group() -> None:
    rows = [
        row(seed, 0.5 + (seed + width) / 100, **{"model.d_model": width, "run_dir": seed})
        for width in (128, 64)
        for seed in (1, 2, 3)
    ]
    rows[0]["observe.terminal"] = False  # changes nothing that is learned
    groups = [(one.label, len(one.rows)) for one in group(rows)]
    assert groups == [("d_model=64", 3), ("d_model=128", 3)]


def test_differences_are_those_of_pairs_with_all_else_in_common() -> None:
    """The effect of one setting is found although seeds and another setting move the loss more."""
    rng = np.random.default_rng(0)
    rows, effects = [], []
    for seed in range(4):
        of_seed = 0.01 + 0.001 * rng.random()  # the settings of one seed are not independent
        for lr, more in ((0.1, 0.0001), (0.2, -0.0001)):
            base, effect = 10 * rng.random(), of_seed + more
            effects.append(of_seed)
            for is_on in (True, False):
                bpb = base if is_on else base + effect
                rows.append(row(seed, bpb, **{"model.qk_norm": is_on, "optimizer.lr": lr}))
    (found,) = compare_by(rows, ["model.qk_norm"])
    low, high = stats.ttest_1samp(effects[::2], 0).confidence_interval()
    assert (found.group, found.other, found.seeds) == ("qk_norm=false", "qk_norm=true", 4)
    assert [found.bpb - found.margin, found.bpb + found.margin] == pytest.approx([low, high], 1e-3)
    assert not found.is_noise and str(found).endswith("], 4 seeds")
    pairs = compare(group(rows))  # of groups, which have four seeds each
    assert len(pairs) == 3 and all(one.seeds == 4 and one.is_noise for one in pairs[1:])
    assert str(pairs[-1]).endswith("within seed noise")


def test_a_seed_counts_once() -> None:
    """Also if it was trained twice, or with several other settings."""
    rows = [row(1, bpb, **{"model.qk_norm": on}) for on, bpb in ((True, 0.5), (False, 0.6))] * 2
    (one,) = compare(group(rows))
    assert (one.seeds, one.margin) == (1, math.inf)
    assert "+0.1000 bpb, 1 seed: no interval" in str(one)
    table = summary_lines(group(rows), [one], 0.0)
    assert [line.split()[1:3] for line in table[1:3]] == [["1", "0.5000"], ["1", "0.6000"]]


def test_all_columns_count_seeds() -> None:
    """Seed 1 was trained three times, once without reaching the loss."""
    rows = [
        row(seed, bpb, floor_bpb=0.5, curve=[{"step": 1, "seconds": seconds, "val_bpb": bpb}])
        for seed, bpb, seconds in ((1, 0.6, 9), (1, 0.7, 3), (1, 0.8, 5), (2, 0.55, 2))
    ]
    (line,) = summary_lines(group(rows), [], 0.75)[1:]
    above, times = stats.tstd([0.4, 0.1]), stats.tstd([6, 2])
    assert re.split("  +", line)[1:5] == [
        "2",
        f"0.6250 ± {stats.tstd([0.7, 0.55]):.4f}",
        f"25.00% ± {above:.2%}",
        f"4.0 ± {times:.1f} (3 of 4 runs)",
    ]


def test_seconds_to_a_loss_are_interpolated() -> None:
    curve = [{"val_bpb": bpb, "seconds": seconds} for bpb, seconds in ((3, 10), (2, 20), (1, 40))]
    assert [seconds_to(curve, bpb) for bpb in (4.0, 3.0, 2.5, 1.25, 0.5)] == [10, 10, 15, 35, None]


def test_roles_of_heads_are_counted() -> None:
    one = {"heads": {"L0H0": "copies 45%", "L0H1": "looks at 'Oh' 62%", "L0H2": "mixed"}}
    other = {"heads": {"L0H0": "copies 9%", "L0H1": "looks at '5%' 40%", "L0H2": "copies 61%"}}
    assert roles([one, other, {}]) == "3 copies, 2 looks at one token, 1 mixed"
    assert roles([{}]) == ""


def test_evidence_of_another_step_is_not_that_of_the_result(run: Path) -> None:
    found = json.loads((run / "evidence.json").read_text())
    (run / "evidence.json").write_text(json.dumps(found | {"step": found["step"] - 1}))
    (row,) = results(run)
    assert "heads" not in row


def seeded(tiny_run: Path, folder: Path, seed: int, qk_norm: bool, bpb: float) -> None:
    """A copy of a run, with another seed and result."""
    copy = Path(shutil.copytree(tiny_run, folder / f"{qk_norm},seed={seed}"))
    configure(copy, lambda stored: stored.update(seed=seed))
    configure(copy, lambda stored: stored["model"].update(qk_norm=qk_norm))
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps({**summary, "val_bpb": bpb}))


def test_rows_of_a_real_run(tiny_run: Path) -> None:
    """Settings, summary and curve are those of the files; the time is that of the summary."""
    (found,) = results([tiny_run.parent])
    assert found["run"] == str(tiny_run)
    summary = json.loads((tiny_run / "summary.json").read_text())
    assert summary.items() <= found.items()
    assert found["model.d_model"] == 16 and found["seed"] == 1
    heads = json.loads((tiny_run / "evidence.json").read_text())["heads"]
    assert found["heads"] == {name: head["role"][0] for name, head in heads.items()}
    last = found["curve"][-1]
    assert (last["step"], last["val_bpb"]) == (summary["steps"], summary["val_bpb"])
    assert last["seconds"] == pytest.approx(summary["seconds"], rel=0.05, abs=0.05)


def test_runs_are_found_in_order(tmp_path: Path) -> None:
    """But not in a hidden folder; and by a pattern, unless that is the name of a folder."""
    for name in ("b", "a", "c", ".killed", "x[ab]/d", "xa/e"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").touch()

    def found(pattern: str) -> list[str]:
        return [run.relative_to(tmp_path).as_posix() for run in find_runs(tmp_path / pattern)]

    assert found(".") == ["a", "b", "c", "x[ab]/d", "xa/e"]
    assert found("?") == ["a", "b", "c"]
    assert found("x[ab]") == ["x[ab]/d"]


def test_compare_on_the_command_line(tiny_run: Path, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        for qk_norm in (True, False):
            seeded(tiny_run, tmp_path / "sweep", seed, qk_norm, seed + (0.0 if qk_norm else 0.25))
    (tmp_path / "sweep" / "True,seed=1" / "summary.json").unlink()
    done = command("compare", "sweep", "by=model.qk_norm", cwd=tmp_path)
    assert "left out: sweep/True,seed=1 is not finished" in done.stderr
    assert "different code" not in done.stderr
    assert "qk_norm=true against qk_norm=false: -0.2500 bpb [-0.2500, " in done.stdout
    printed = succeed("compare", "sweep", "by=model.qk_norm", "json=true", cwd=tmp_path)
    assert succeed("compare", "sweep", "by=model", "json=true", cwd=tmp_path) == printed
    found = json.loads(printed)
    assert printed.count("\n") == 1
    assert [(one["label"], one["seeds"], one["bpb"]) for one in found["groups"]] == [
        ("qk_norm=false", 3, 2.25),
        ("qk_norm=true", 2, 2.5),
    ]
    assert {*found["groups"][1]["runs"]} == {f"sweep/True,seed={seed}" for seed in (2, 3)}
    assert found["differences"] == [
        {"group": "qk_norm=true", "other": "qk_norm=false", "bpb": -0.25, "margin": 0.0, "seeds": 2}
    ]
    assert found["curves"] is None and not (tmp_path / "sweep/curves").exists()
    printed = succeed("compare", "sweep", "by=model.qk_norm", "curves=true", cwd=tmp_path)
    assert printed.endswith("\nMean curves of the seeds: tensorboard --logdir sweep/curves\n")
    curves = {path.name for path in (tmp_path / "sweep/curves").iterdir()}
    assert curves == {"qk_norm=false", "qk_norm=true"}
    succeed("compare", "sweep/True,seed=2", "sweep/True,seed=3", "curves=true", cwd=tmp_path)
    written = (tmp_path / "sweep/curves").rglob("events.*")
    assert {path.parent.name for path in written} == {"all_runs"}
    (tmp_path / "sweep/True,seed=2/code.json").write_text('{"sha256": "another"}')
    said = command("compare", "sweep", cwd=tmp_path).stderr
    assert "note: qk_norm=true: its runs were trained by different code" in said
    assert "qk_norm=false" not in said
    # A folder whose name has an equals sign; a setting that does not differ.
    one = succeed("compare", "sweep/True,seed=2", cwd=tmp_path)
    assert one.splitlines()[1].startswith("all runs")
    for arguments, words in (
        (["sweep", "by=model.d_model"], "choose one of model.qk_norm"),
        (["nowhere"], "nowhere contains no run"),
        ([], "python compare.py runs/sweep_*"),
    ):
        done = command("compare", *arguments, cwd=tmp_path)
        assert done.returncode == 2 and words in done.stderr, done.stderr


def test_only_runs_on_the_same_text_are_compared() -> None:
    """Those on another are in the table."""
    rows = [
        row(1, n + is_on / 4, tokens_sha256=n, **{"data.n_bytes": n, "model.qk_norm": is_on})
        for n in (6, 7)
        for is_on in (True, False)
    ]
    (note,) = notes(rows)
    assert note.startswith("data.n_bytes: the runs were not scored on the same text")
    assert [one.text for one in group(rows)] == [0, 0, 1, 1]
    assert [(one.bpb, one.group, one.other) for one in compare(group(rows))] == [
        (0.25, f"qk_norm=true, n_bytes={n}", f"qk_norm=false, n_bytes={n}") for n in (6, 7)
    ]
    (by,) = compare_by(rows, ["model.qk_norm"])
    assert (by.bpb, by.seeds) == (0.25, 1)
    (by,) = compare_by(rows, ["data.n_bytes"])
    assert str(by).endswith("no seed in common, with all else and the scored text equal")


def evaluated(
    tokens: str = "a", text: str | None = None, part: str = "all", length: int = 8
) -> dict[str, Any]:
    """A row of a run whose text has 300 tokens; of which the last evaluation scored a part."""
    windows = EvalBatches(np.arange(300, dtype=np.uint16), length, 4)
    scored = windows.part(None if part == "all" else int(part))
    return row(
        1,
        0.5,
        **{"model.context_length": length, "trainer.final_eval_tokens": part},
        tokens_sha256=tokens,
        text=text,
        val_tokens=scored.n_targets,
        scored={target for _, targets in scored for target in targets[targets >= 0].tolist()},
    )


def test_losses_over_different_tokens_are_not_compared() -> None:
    """Of one tokenizer, against the tokens that are scored; also where they are as many."""
    rows = [
        evaluated(part=part, length=length) for part in ("all", "32", "64") for length in (8, 16)
    ]
    rows += [evaluated(part="1000"), evaluated(part="64")]
    rows += [evaluated(text="with other code, which finds the same tokens")]
    texts = scored_texts(rows)
    same = [[one["scored"] == other["scored"] for other in rows] for one in rows]
    assert [[one == other for other in texts] for one in texts] == same
    assert len({*texts}) == 5
    counts = [one["val_tokens"] for one in rows]
    assert len({*counts}) < 5, "as many tokens, and others"
    # Of two tokenizers, if the same text is scored whole.
    whole, part = evaluated(text="c"), evaluated(text="c", part="64")
    assert len({*scored_texts([whole, evaluated("b", "c")])}) == 1
    for pair in ([whole, evaluated("b", "d")], [part, evaluated("b", "c", part="64")]):
        assert len({*scored_texts(pair)}) == 2


def test_times_to_a_loss_are_those_of_evaluations_of_the_same_tokens() -> None:
    curve = [
        {"step": step, "val_bpb": 1 / step, "seconds": step, "val_tokens": 64} for step in (1, 2)
    ]
    rows = [row(seed, 0.4, curve=curve, **{"trainer.eval_tokens": "64"}) for seed in (1, 2)]
    assert target_loss(group(rows)) == 0.5 and not notes(rows)
    others = [{**point, "val_tokens": 80} for point in curve]
    for wrong in (others, [curve[0], others[1]]):
        rows[1] = row(2, 0.4, curve=wrong, **{"trainer.eval_tokens": "64"})
        groups = group(rows)
        assert len(groups) == 1, "the last evaluations are of the same tokens"
        assert target_loss(groups) is target_loss(groups, 0.7) is None
        (note,) = notes(rows)
        assert note.startswith("the evaluations during training did not score the same text")
        assert "seconds to" not in summary_lines(groups, [], None)[0]


@pytest.mark.parametrize(
    ("file", "text"),
    [("metrics.jsonl", "{\n"), ("summary.json", "{"), ("metrics.jsonl", '{"val_bpb": 1.5}\n')],
)
def test_an_odd_run_is_left_out(tiny_run: Path, tmp_path: Path, file: str, text: str) -> None:
    for seed in (1, 2):
        seeded(tiny_run, tmp_path, seed, True, 1.0)
    (tmp_path / "True,seed=1" / file).write_text(text)
    with pytest.raises(UserError, match=r"seed=1: summary\.json or metrics\.jsonl cannot"):
        results([tmp_path])
    (tmp_path / "multirun.yaml").write_text("a: 1\n")
    (tmp_path / "empty").mkdir()
    done = command("compare", *(path.name for path in sorted(tmp_path.iterdir())), cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.splitlines()[1].startswith("all runs      1")
    notes = ("empty contains no", "multirun.yaml contains no", "True,seed=1: summary.json or")
    assert [line.startswith("note: left out: ") for line in done.stderr.splitlines()] == [True] * 3
    assert all(note in done.stderr for note in notes)
    done = command("compare", "multirun.yaml", "empty", "True,seed=1", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
