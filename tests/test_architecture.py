"""The rules of the house: who may import whom, and that a config executes nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

OURS = {"model", "data", "training", "observe", "tensorboard_attention", "configs", "errors"}
SCRIPTS = ("train", "sample", "evaluate", "attention", "shapes", "observers")
MAY_IMPORT = {
    "data": {"data", "errors"},
    "model": {"model", "errors"},
    "training": {"training", "model", "data", "errors"},
    "observe": {"observe", "model", "training.observer", "tensorboard_attention", "errors"},
    "tensorboard_attention": {"tensorboard_attention"},
}


def imported(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it the import stands."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize(
    "path",
    [path for folder in MAY_IMPORT for path in sorted((ROOT / folder).rglob("*.py"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_imports_go_one_way(path: Path) -> None:
    allowed = MAY_IMPORT[path.relative_to(ROOT).parts[0]]
    for name in imported(path):
        if name.split(".")[0] in OURS | set(SCRIPTS):
            assert any(name == each or name.startswith(each + ".") for each in allowed), name


def test_the_parts_know_nothing_of_hydra() -> None:
    for folder in MAY_IMPORT:
        for path in (ROOT / folder).rglob("*.py"):
            assert not {name.split(".")[0] for name in imported(path)} & {"hydra", "omegaconf"}, (
                path
            )


def test_no_config_names_code_to_run() -> None:
    def keys(node: object) -> set[str]:
        if isinstance(node, dict):
            return set(node).union(*map(keys, node.values()))
        return set().union(*map(keys, node)) if isinstance(node, list) else set()

    configs = sorted((ROOT / "configs").rglob("*.yaml"))
    assert configs
    for path in configs:
        found = keys(yaml.safe_load(path.read_text()))
        assert not [key for key in found if str(key).startswith("_")], path


def test_every_file_says_what_it_promises() -> None:
    for path in sorted(ROOT.glob("*.py")) + [
        each for folder in (*MAY_IMPORT, "configs") for each in (ROOT / folder).rglob("*.py")
    ]:
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"
