"""look.py circuit=true: the tables of a circuit."""

from __future__ import annotations

from pathlib import Path

import pytest

import inference.tables
from inference.opening import open_run
from inference.tables import percent, set_name, signed
from model import circuit
from model.hooks import Part
from tests.conftest import command, succeed

TEXT = "Once there was a hen"


def test_the_tables_are_the_circuit(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_run(tiny_run, "last")
    tokens, means = opened.tokens(TEXT), opened.means(tiny_run.parent.parent / ".cache")
    given = ["look", f"run={tiny_run}", f"text={TEXT}", "circuit=true"]
    found = circuit(opened.model, tokens, means)
    rows = [line.strip("│ ").split() for line in succeed(*given, cwd=tmp_path).splitlines()]
    for on, value in found.best():
        names = set_name(on, found.parts).split()
        assert [str(len(on)), "│", *names, "│", percent(value)] in rows
    for name, value, alone in zip(found.names, found.shapley(), found.alone(), strict=True):
        assert [*name.split(), "│", signed(value), "│", signed(alone)] in rows
    assert ["sum", "│", signed(found.values[-1] - found.values[0])] in rows

    pairs, names = found.interactions(), found.names
    for kind, place in (("Need each other", pairs.argmax()), ("Stand in", pairs.argmin())):
        (line,) = (row for row in rows if " ".join(row).startswith(kind))
        i, j = sorted(divmod(int(place), len(pairs)))
        assert f": {names[i]} and {names[j]} {signed(pairs[i, j])}" in " ".join(line)

    other = circuit(opened.model, tokens, means, opened.tokenizer.encode("a")[0])
    assert f"Next 'a': {percent(other.values[-1])}" in succeed(*given, "target=a", cwd=tmp_path)
    monkeypatch.setattr(inference.tables, "MAX_PARTS", 2)
    done = command(*given, cwd=tmp_path)
    assert "with all 2 parts" in done.stdout and "the 2 that matter most" in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["target=a hen"], "target: 'a hen' is "),
        (["text="], "text: is empty"),
        ([f"text={'hen ' * 100}"], "text: has "),
        (["cache_dir=/dev/null"], "cache_dir: /dev/null: cannot be read or written"),
        (["html=page.html"], "circuit: is printed for a text at one step"),
        (["circuit=false", "target=a"], "target: is the next token of a circuit"),
    ],
)
def test_what_has_no_circuit_is_refused(
    tiny_run: Path, tmp_path: Path, given: list[str], said: str
) -> None:
    settings = [f"run={tiny_run}", "circuit=true", *given]
    if not any(each.startswith("text=") for each in given):
        settings.append(f"text={TEXT}")
    done = command("look", *settings, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {said}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_what_rounds_to_0_is_not_negative_and_not_none() -> None:
    assert [percent(share) for share in (0, 4e-4, 6e-4, 1)] == ["0.0%", "<0.1%", "0.1%", "100.0%"]
    assert [signed(value) for value in (-4e-4, 4e-4, -6e-4)] == ["+0.0%", "+0.0%", "-0.1%"]
    assert signed(-1e-4, "+.3f") == "+0.000"


def test_large_sets_are_named_by_what_they_lack() -> None:
    parts: list[Part] = [(0, 0), (0, 1), "mlp 0"]
    names = [set_name(parts[:n], parts) for n in range(4)]
    assert names == ["none", "L0H0", "all but L0 MLP", "all"]
