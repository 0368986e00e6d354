"""Architecture rules: which package may import which, and configs never execute code."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

from tests.conftest import ROOT, SCRIPTS, begin, finish

DISTRIBUTIONS = packages_distributions()
MAY_IMPORT = {
    "model": {"model", "common"},
    "data": {"data", "common"},
    "store": {"store", "model", "data", "tensorboard_attention", "common"},
    "training": {"training", "store", "model", "data", "common"},
    "inference": {"inference", "store", "model", "data", "common"},
    "exchange": {"exchange", "inference", "store", "model", "data", "common"},
    "observe": {
        *("observe", "store", "model", "data", "live", "tensorboard_attention"),
        *("training.callback", "training.trainer"),
        "common",
    },
    "live": {"live", "inference", "model", "data", "tensorboard_attention", "common"},
    "tensorboard_attention": {"tensorboard_attention"},
    "common": {"common"},
    "launch": {
        *("launch", "data", "inference", "live", "model", "observe", "store", "training"),
        "common",
    },
}
OURS = {*MAY_IMPORT, *SCRIPTS, "tiny"}
FILES = [
    path
    for folder in MAY_IMPORT
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "tests" not in path.parts
]


def imported(path: Path, at_run_time: bool = False) -> set[str]:
    """The modules that a file imports anywhere, or only those outside `if TYPE_CHECKING`."""
    names = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if at_run_time and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", [*FILES, *ROOT.glob("*.py")], ids=str)
def test_imports_go_one_way(path: Path) -> None:
    """A package imports only what `MAY_IMPORT` lists, and nothing imports a script."""
    allowed = MAY_IMPORT.get(path.relative_to(ROOT).parts[0], OURS - {*SCRIPTS})
    for name in imported(path):
        if name.split(".")[0] in OURS:
            assert any(name == each or name.startswith(each + ".") for each in allowed)


def test_no_file_imports_itself_through_others() -> None:
    """Neither inside functions nor for annotations alone."""
    names = {
        path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in FILES
    }
    ours = {*names.values()}
    graph = {name: imported(path) & ours for path, name in names.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_sampling_loads_few_files(tiny: Path) -> None:
    """Those of the project that writing a text with a run takes: neither corpora nor optimizers."""
    program = (
        "import runpy, sys; sys.argv = ['sample.py', 'max_new_tokens=5']; "
        f"runpy.run_path({str(ROOT / 'sample.py')!r}, run_name='__main__'); "
        "print(*[getattr(each, '__file__', None) for each in sys.modules.values()], sep='\\n')"
    )
    printed = finish(begin("-c", program, cwd=tiny, PYTHONPATH=str(ROOT)))
    ours = {*map(str, FILES), *map(str, ROOT.glob("*.py"))}
    loaded = ours & {str(ROOT / "sample.py"), *printed.splitlines()}
    assert str(ROOT / "inference/writer.py") in loaded
    assert len(loaded) <= 40, sorted(loaded)


def test_only_launch_imports_hydra() -> None:
    """The reader of settings, which all share, uses OmegaConf."""
    for path in FILES:
        if path.parent != ROOT / "launch":
            allowed = {"omegaconf"} if path == ROOT / "common/settings.py" else set()
            found = {name.split(".")[0] for name in imported(path)} & {"hydra", "omegaconf"}
            assert found <= allowed, path


@cache
def declared(distribution: str, *extras: str) -> set[str]:
    """The distributions that an installed one requires, with normalised names. An extra may name
    others of the same distribution."""
    wanted = set()
    for requirement in requires(distribution) or ():
        extra = re.search(r"extra == ['\"](\w+)", requirement)
        if extra is not None and extra[1] not in extras:
            continue
        if others := re.match(rf"{distribution}\[(.*?)\]", requirement):
            wanted |= declared(distribution, *others[1].split(","))
        else:
            wanted.add(re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-"))
    return wanted


def declarations(parts: tuple[str, ...]) -> list[set[str]]:
    """The lists of packages in all of which an import of this file must be.

    What tests import, and what they run of `docs`, must be in the extra `test`: it is all that
    `make test` installs.
    """
    test = declared("glassgpt", "test")
    if parts[-1] == "test_llama_cpp.py":  # skipped where llama.cpp is not installed
        return [declared("glassgpt", "test", "llama")]
    if parts == ("docs", "hooks.py"):  # the site is built with it, and tests run it
        return [test, declared("glassgpt", "docs")]
    if {"tests", "benchmarks", "docs"} & {*parts}:
        return [test]
    return [declared("glassgpt", "sweep", "convert", "datasets", "wandb")]


def test_every_imported_package_is_declared() -> None:
    """By the distribution that imports it; packages of tests and benchmarks by an extra."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        if any(part.startswith(".") for part in parts) or parts[0] in ("build", "site", "runs"):
            continue
        lists = declarations(parts)
        for name in {each.split(".")[0] for each in imported(path, at_run_time=True)}:
            if name in OURS | {"glassgpt", "tests", "benchmarks", "docs"} | sys.stdlib_module_names:
                continue
            providers = {each.lower().replace("_", "-") for each in DISTRIBUTIONS.get(name, [name])}
            assert all(providers & known for known in lists), (
                f"{path.relative_to(ROOT)} imports {name}"
            )


def test_the_project_declares_what_the_tab_alone_does() -> None:
    """Its entry point for TensorBoard, and its dependencies."""
    files = [
        (ROOT / path).read_text()
        for path in ("pyproject.toml", "tensorboard_attention/pyproject.toml")
    ]
    whole, alone = (re.findall(r"^attention = .*", text, re.M) for text in files)
    assert whole == alone != []
    lists = [re.search(r"^dependencies = \[(.*?)\]", text, re.M | re.S) for text in files]
    packages = [{*re.findall(r'"([\w-]+)', found[1])} for found in lists if found]
    assert packages[0] >= packages[1] >= {"tensorboard"}


def test_no_config_names_code_to_execute() -> None:
    """As a key that begins with an underscore, such as `_target_`."""
    configs = sorted((ROOT / "configs").rglob("*.yaml"))
    assert configs
    for path in configs:
        assert not re.search(r"(?<![\w.])_\w+['\"]?\s*:", path.read_text()), path


def test_every_file_has_a_docstring() -> None:
    for path in [*ROOT.glob("*.py"), *FILES]:
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_tiny_is_short_and_needs_only_torch() -> None:
    assert len((ROOT / "tiny.py").read_text().splitlines()) <= 200
    names = {name.partition(".")[0] for name in imported(ROOT / "tiny.py")}
    assert names == {"math", "sys", "pathlib", "torch"}
