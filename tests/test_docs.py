"""The README and the guide: their commands are valid, their links lead somewhere, and what is
generated for the site is complete."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from common.settings import all_settings
from data.corpora import open_corpus
from launch.cli import VERSION
from launch.quoting import read_arguments
from launch.schema import preset
from tests.conftest import ROOT, SCRIPTS, settings_of

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])
RUN = re.compile(r"(?:^ *|\| |`)(?:python|torchrun(?: --\S+)*) (\w+)\.py([^`\n]*)", re.MULTILINE)
hooks = runpy.run_path(str(ROOT / "docs/hooks.py"))


def commands() -> list[tuple[str, str]]:
    """Script and arguments of every command line that composes settings."""
    found = set()
    for page in PAGES:
        text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))  # continued lines
        for script, arguments in RUN.findall(text):
            if script in SCRIPTS:
                found.add((script, arguments.partition(" # ")[0].strip()))
    return sorted(found)


@pytest.fixture(scope="module", autouse=True)
def hydra_ready() -> Iterator[None]:
    with initialize_config_dir(str(ROOT / "configs"), **VERSION):
        yield


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


def test_commands_are_found() -> None:
    assert {script for script, _ in commands()} == set(SCRIPTS)


@pytest.mark.parametrize(("script", "arguments"), commands())
def test_every_command_is_valid(script: str, arguments: str) -> None:
    given = shlex.split(arguments)
    if "--version" in given:
        return
    read = read_arguments(given, script, settings_of(script))
    settings = [each for each in read if "=" in each and not each.startswith("+hydra.")]
    if script == "verdict":  # whose idea is for train.py
        mine = all_settings(settings_of(script))
        idea = [each for each in given if each.partition("=")[0] not in mine]
        test_every_command_is_valid("train", shlex.join(idea))
    if "--multirun" in read:  # the first value of each
        settings = [each for each in given if "=" in each]
        settings = [re.sub(r"=.*(?:interval|choice|range)\(", "=", each) for each in settings]
        settings = [each.partition(",")[0] for each in settings]
    compose(script, settings, return_hydra_config=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not re.match(r"https?:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_the_settings_page_lists_every_setting_and_choice() -> None:
    page = hooks["settings"]()
    listed = re.findall(r"^\| `([\w.]+)` \| `.+` \|", page, re.MULTILINE)
    for script in SCRIPTS:
        names = all_settings(settings_of(script)).keys()
        groups = {name.rpartition(".")[0] for name in names} | {"data", "tokenizer"}
        assert names - groups <= set(listed), script
    choices = sorted((ROOT / "configs").glob("*/*.yaml"))
    assert choices
    for path in choices:
        assert f"#### {path.parent.name}={path.stem}" in page


def test_every_setting_has_a_meaning() -> None:
    # The name of a choice needs none, nor does a preset, whose settings nano.yaml explains.
    for path in sorted((ROOT / "configs").rglob("*.yaml")):
        if path.parent.name in ("model", "experiment") and path.stem != "nano":
            continue
        for name, _, comment in hooks["read_explained"](path):
            assert comment or name == "name", f"{path}: {name}"


def test_the_notebook_page_is_complete() -> None:
    cells = json.loads((ROOT / "notebooks/attention.ipynb").read_text(encoding="utf-8"))["cells"]
    page = hooks["notebook"]()
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    images = [out for cell in code for out in cell["outputs"] if "image/png" in out.get("data", {})]
    assert page.count("```python\n") == len(code)
    assert page.count("<img ") == len(images)
    assert page.count("<math ") > 10
    for markup in ("<style", "<!--", "<script"):
        assert markup not in page
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    assert "$" not in prose
    assert not re.search(r"^# ", prose, re.MULTILINE)


def test_pictures_are_small_and_made_by_one_command() -> None:
    made = (ROOT / "docs/pictures.py").read_text() + (ROOT / "docs/heads_forming.py").read_text()
    pictures = [*(ROOT / "docs").glob("*.png"), *(ROOT / "docs").glob("*.gif")]
    assert len(pictures) > 8
    for picture in pictures:
        assert picture.stat().st_size < 300_000, picture.name
        assert f"{picture.name}" in made or f'"{picture.stem}"' in made, picture.name


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the docs extra; `make docs` builds the site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        loads = r'<(?:script|link|img)\b[^>]*(?:src|href)="?(?:https?:)?//'
        assert not re.search(loads, page.read_text(encoding="utf-8")), page


EXAMPLE = re.compile(r"\b(?:Once there|From a|Long ago)\b[^\"'`<\\\n]*")


def test_words_of_examples_are_in_the_default_corpus() -> None:
    """Of texts in docs, scripts and pages that a model of the tales is given."""
    corpus = open_corpus(preset("data", "tales", n_bytes=1_000_000))
    known = {*re.findall(r"[a-z]+", " ".join(corpus.training_text()).lower())}
    sources = [*ROOT.glob("*.py"), *ROOT.glob("configs/*.yaml"), *ROOT.glob("live/**/*.py")]
    found = [
        (path, text.partition(" Or let")[0])
        for path in [*PAGES, *sources, ROOT / "live/static/layout.js"]
        for text in EXAMPLE.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 15
    for path, text in found:
        assert {*re.findall(r"[a-z]+", text.lower())} <= known, (path, text)
