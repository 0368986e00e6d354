"""Every preset composes and builds, and free text on the command line is taken literally."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from common.errors import UserError
from common.settings import Values, build, typed
from convert import ConvertConfig
from launch.cli import VERSION, plain_values
from launch.quoting import CONFIGS, choices, if_sweep, read_arguments
from launch.schema import TrainConfig
from model import GPT
from shapes import ShapesConfig
from store.settings import read_settings, settings_yaml
from tests.conftest import settings_of


@pytest.fixture(scope="module", autouse=True)
def hydra_ready() -> Iterator[None]:
    with initialize_config_dir(str(CONFIGS), **VERSION):
        yield


def composed(*overrides: str, name: str = "train") -> DictConfig:
    return compose(name, list(overrides))


def built(*overrides: str) -> TrainConfig:
    return build(TrainConfig, plain_values(composed(*overrides)))


def read(arguments: list[str], script: str = "train") -> list[str]:
    """The arguments for Hydra's parser, without those about Hydra itself."""
    given = read_arguments(arguments, script, settings_of(script))
    return [each for each in given if not each.startswith(("hydra.", "+hydra.", "--"))]


# The script, its arguments, and a part of the message about them.
MISTAKES: list[tuple[str, list[str], str]] = [
    ("sample", ["prompt=Once", "upon"], "upon: must have the form setting=value; leave out spaces"),
    # Paths
    ("sample", ["runs/a/"], "value; did you mean run=runs/a?"),
    ("convert", ["latest", "to=x"], "value; did you mean source=latest?"),
    ("shapes", ["a=b"], "value; did you mean run=a=b?"),
    ("train", ["hen"], "value; did you mean resume=hen or data=text data.path=hen?"),
    # Names
    ("train", [".seed=1"], ".seed: has a dot, slash or @ at an end, or two in a row; give a name"),
    ("train", ["hydras=1"], "hydras: no such setting"),
    # Groups
    ("train", ["optimizer={lr: 1}"], "optimizer is a group of settings, not one value; leave it"),
    ("compare", ["runs=[a]", "a"], "runs: give all of it as it is, without runs="),
    ("train", ["observe.attention=5"], "observe.attention=5: observe.attention is a group of sett"),
]


@pytest.mark.parametrize(("script", "arguments", "message"), MISTAKES)
def test_a_mistake_in_the_form_of_an_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, arguments: list[str], message: str
) -> None:
    for path in ("a=b", "hen"):
        (tmp_path / path).touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        read(arguments, script)
    assert message in str(caught.value)


@pytest.mark.parametrize("group", ["data", "tokenizer", "model", "optimizer"])
def test_every_option_of_every_group_builds(group: str) -> None:
    assert choices(group)
    for option in choices(group):
        config = built(f"{group}={option}", *["data.path=x"] * (option == "text"))
        assert group == "model" or getattr(config, group).name == option


@pytest.mark.parametrize(
    ("preset", "vocab_size", "millions"), [("gpt2", 50257, 124.4), ("qwen3_0_6b", 151936, 596.0)]
)
def test_presets_have_the_published_sizes(preset: str, vocab_size: int, millions: float) -> None:
    config = build(ShapesConfig, plain_values(composed(f"model={preset}", name="shapes")))
    with torch.device("meta"):
        model = GPT(config.model, vocab_size)
    assert round(model.n_parameters / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("names", "inner", "total"),
    [
        (("shakespeare_fast", "shakespeare_bytes"), 810_000, 1_100_000),
        (("shakespeare_best", "shakespeare_gpu"), 10_650_000, 11_100_000),
    ],
)
def test_experiments_are_no_larger_than_their_baselines(
    names: tuple[str, ...], inner: int, total: int
) -> None:
    """In parameters without embeddings, and in total."""
    for name in names:
        config = built(f"experiment={name}")
        gpt = GPT(config.model, config.tokenizer.vocab_size or 256)
        assert sum(each.numel() for each in gpt.blocks.parameters()) <= inner
        assert gpt.n_parameters <= total


@pytest.mark.parametrize("key", ["prompt", "data.path"])
@settings(max_examples=20)
@example(text="'all in quotes'")
@example(text='"Hi"')
@example(text="???")
@example(text="\\${x}")
@given(text=st.text(min_size=1).filter(lambda text: text != "null"))
def test_free_text_is_taken_literally(key: str, text: str) -> None:
    script = "sample" if key == "prompt" else "train"
    (override,) = read([f"{key}={text}"], script)
    assert value_of(override) == text


def value_of(override: str) -> object:
    """What Hydra's parser reads, as a script has it in `plain_values`."""
    value = OverridesParser.create().parse_override(override).value()
    container: Any = OmegaConf.to_container(OmegaConf.create({"value": value}), resolve=True)
    return container["value"]


def test_no_experiment_is_one_of_the_experiments() -> None:
    found = [each for each, _ in jobs("experiment=null,nullable,not-null", "seed=1")]
    assert found == [f"experiment={name}" for name in ("none", "nullable", "not-null")]
    undone = read(["experiment=finetune", "experiment=null", "seed=2"])
    assert composed(*undone) == composed("seed=2")


def jobs(*arguments: str) -> list[list[str]]:
    """The overrides of each run of a sweep, as Hydra's own sweeper divides them."""
    read([*arguments])
    overrides = OverridesParser.create().parse_overrides(if_sweep)
    return BasicSweeper.split_arguments(overrides, None)[0]


LETTERS = st.characters(codec="utf-8", exclude_characters=",") | st.sampled_from("'\"\\$={}()[] ")


@settings(max_examples=20)
@example(text="1e3")
@example(text=" #1 (a b).txt")
@example(text="null")
@example(text="'all in quotes'")
@given(text=st.text(LETTERS, min_size=1))
def test_a_sweep_reads_a_single_value_as_a_run_does(text: str) -> None:
    (alone,) = read([f"init_from={text}"])
    for swept, _ in jobs(f"init_from={text}", "seed=1,2"):
        assert value_of(swept) == value_of(alone)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("李明.txt, it's (1).txt,1e3", ["李明.txt", "it's (1).txt", "1e3"]),
        ("null,${x},true", [None, "${x}", "true"]),
        ("choice('a, b', 'b c')", ["a, b", "b c"]),
    ],
)
def test_commas_divide_the_values_of_a_sweep(text: str, values: list[str]) -> None:
    assert [value_of(*job) for job in jobs(f"init_from={text}")] == values


def stored(folder: Path, values: Values) -> Path:
    (folder / "config.yaml").write_text(settings_yaml(values), "utf-8")
    return folder / "config.yaml"


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
@example(text="${x}")
@example(text="1e3")
@example(text="\x85\u2028")
def test_stored_settings_keep_their_types_and_texts(tmp_path: Path, text: str) -> None:
    values = {"text": text, "none": None, "small": 1e-05, "float": 0.0, "number": 7}
    again = read_settings(stored(tmp_path, values))
    assert again == values and [*map(type, again.values())] == [*map(type, values.values())]


def test_typed_settings_are_stored_as_they_are(tmp_path: Path) -> None:
    config = composed("data=text", "data.path=x", "optimizer.lr=1e-05", "model.dropout=0")
    values = typed(TrainConfig, {**plain_values(config), "name": None})
    again = read_settings(stored(tmp_path, values))
    assert again == values and type(again["model"]["dropout"]) is float


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model.n_layers", "two", "model.n_layers: Value 'two' of type 'str' could not be"),
        ("model.n_layers", True, "model.n_layers: "),
        ("model.n_layers", 0, "model.n_layers: 0 is out of range"),
        ("model.n_layer", 3, "model.n_layer: no such setting; did you mean model.n_layers?"),
        ("model.rope_theta", 10**400, "model.rope_theta: int too large"),
        ("model", [1, 2], "model: [1, 2] is no group of settings"),
        ("model._target_", "os.mkdir", "model._target_: no such setting"),
        ("data.name", "novels", "data.name: 'novels' is unknown"),
        ("data.path", "x", "data.path: this choice of data has no such setting; add data="),
    ],
)
def test_a_setting_that_is_wrong_is_named_in_full(name: str, value: object, message: str) -> None:
    values = plain_values(composed())
    *groups, key = name.split(".")
    section = values
    for group in groups:
        section = section[group]
    section[key] = value
    with pytest.raises(UserError) as caught:
        build(TrainConfig, values)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_a_setting_that_is_missing_is_named_in_full() -> None:
    values = plain_values(composed())
    del values["observe"]["samples"]["top_k"]
    with pytest.raises(UserError, match=r"^observe\.samples\.top_k: is missing"):
        build(TrainConfig, values)
    with pytest.raises(UserError, match=r"^to: is missing; give to="):
        build(ConvertConfig, plain_values(composed(name="convert")))


@pytest.mark.parametrize(
    "text",
    [
        *("", "- 1", pytest.param("a: " + "[" * 2_000, id="deep"), "a: &b 1\nc: *b"),
        "a: !!python/object/apply:os.mkdir [sprung]",
    ],
)
def test_a_damaged_stored_file_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"^config\.yaml"):
        read_settings(Path("config.yaml"))
    assert [*tmp_path.iterdir()] == [tmp_path / "config.yaml"]
