"""Every preset composes and builds, and free text on the command line is taken literally."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from common.errors import UserError
from configs.cli import read_arguments
from configs.schema import (
    EvaluateConfig,
    SampleConfig,
    ShapesConfig,
    TrainConfig,
    build,
    literal,
    load_run_config,
    register,
    resumed_config,
)
from model import GPT
from tests.conftest import ROOT
from training.run import Run
from training.stored import flat

CONFIGS = ROOT / "configs"


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


@pytest.fixture(scope="module", autouse=True)
def hydra_ready() -> Iterator[None]:
    register()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        yield


def composed(*overrides: str, name: str = "train") -> DictConfig:
    return compose(name, list(overrides))


@pytest.mark.parametrize("group", ["data", "tokenizer", "model", "optimizer"])
def test_every_option_of_every_group_builds(group: str) -> None:
    assert options(group)
    for option in options(group):
        extra = ["data.path=x"] if option == "text" else []
        config = build(composed(f"{group}={option}", *extra), TrainConfig)
        part = getattr(config, group)
        if group != "model":
            assert part.name == option


def test_every_script_builds_from_its_defaults() -> None:
    for name, kind in (
        ("train", TrainConfig),
        ("sample", SampleConfig),
        ("evaluate", EvaluateConfig),
        ("shapes", ShapesConfig),
    ):
        assert isinstance(build(composed(name=name), kind), kind)


@pytest.mark.parametrize(
    ("preset", "vocab_size", "millions"), [("gpt2", 50257, 124.4), ("qwen3_0_6b", 151936, 596.0)]
)
def test_presets_have_the_published_sizes(preset: str, vocab_size: int, millions: float) -> None:
    config = build(composed(f"model={preset}", name="shapes"), ShapesConfig)
    with torch.device("meta"):
        model = GPT(config.model, vocab_size)
    assert round(model.n_parameters / 1e6, 1) == millions


# Parameters without embeddings, and in total, of the experiments that have a baseline.
LIMITS = {
    "shakespeare_fast": (810_000, 1_100_000),
    "shakespeare_bytes": (810_000, 1_100_000),
    "shakespeare_best": (10_650_000, 11_100_000),
    "shakespeare_gpu": (10_650_000, 11_100_000),
}


@pytest.mark.parametrize("experiment", LIMITS)
def test_experiments_are_no_larger_than_their_baselines(experiment: str) -> None:
    config = build(composed(f"experiment={experiment}"), TrainConfig)
    gpt = GPT(config.model, config.tokenizer.vocab_size or 256)
    inner, total = LIMITS[experiment]
    assert sum(each.numel() for each in gpt.blocks.parameters()) <= inner
    assert gpt.n_parameters <= total


def test_the_scaling_experiment_sweeps_five_widths_and_three_seeds() -> None:
    """Also without -m. Nothing else differs, and no window of the text is read twice."""
    assert "--multirun" in read_arguments(["experiment=scaling"])
    assert "--multirun" not in read_arguments(["experiment=shakespeare_fast"])
    sweep = compose("train", ["experiment=scaling"], return_hydra_config=True).hydra.sweeper.params
    values = [[f"{name}={value}" for value in sweep[name].split(",")] for name in sweep]
    jobs = [
        flat(OmegaConf.to_container(composed("experiment=scaling", *job)))
        for job in product(*values)
    ]
    assert len(jobs) == 15
    differing = {name for job in jobs for name in job if job[name] != jobs[0][name]}
    assert differing == {"model.d_model", "seed"}
    widths = sorted({job["model.d_model"] for job in jobs})
    assert all(1.4 < wide / narrow < 1.6 for narrow, wide in pairwise(widths))
    for width in widths:
        config = build(composed("experiment=scaling", f"model.d_model={width}"), TrainConfig)
        assert config.model.d_head == width / 4 and config.model.n_layers == 2
    trainer, n_bytes = config.trainer, config.data.n_bytes * (1 - config.data.val_fraction)
    read = trainer.max_steps * trainer.batch_size * config.model.context_length
    assert read < n_bytes / 4.4  # bytes per token


def test_public_settings_exist() -> None:
    """Users rely on these names."""
    config = composed("data=text", "data.path=x")
    for name in (
        *("seed", "run_dir", "resume", "init_from", "data.path", "tokenizer.vocab_size"),
        "model.n_layers",
        *("model.n_heads", "model.n_kv_heads", "model.d_model", "model.context_length"),
        *("model.dropout", "optimizer.lr", "optimizer.weight_decay", "trainer.max_steps"),
        *("trainer.batch_size", "trainer.eval_every", "trainer.checkpoint_every"),
        *("trainer.device", "trainer.precision", "trainer.compile", "trainer.grad_accumulation"),
        *("observe.attention.every", "observe.attention.probe"),
    ):
        parent, _, key = name.rpartition(".")
        assert key in (OmegaConf.select(config, parent) if parent else config), name


@pytest.mark.parametrize("key", ["prompt", "data.path", "run_dir", "data.separator"])
@settings(max_examples=20)
@example(text="'all in quotes'")
@example(text='"Hi"')
@given(text=st.text(min_size=1).filter(lambda text: text != "null"))
def test_free_text_is_taken_literally(key: str, text: str) -> None:
    group = ["data=text"] if key.startswith("data.") else []
    script = "sample" if key == "prompt" else "train"
    config = composed(*read_arguments([*group, f"{key}={text}"], script), name=script)
    assert OmegaConf.select(config, key) == text


def jobs(*arguments: str) -> list[list[str]]:
    """The overrides of each run of a sweep, as Hydra's own sweeper divides them."""
    _, *read = read_arguments(["-m", *arguments])
    own = [each for each in read if not each.startswith(("hydra.", "+hydra."))]
    return BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(own), None)[0]


LETTERS = st.characters(exclude_characters=",") | st.sampled_from("'\"\\$={}()[] ")


@pytest.mark.parametrize("key", ["observe.samples.prompt", "init_from"])
@settings(max_examples=20)
@example(text="1e3")
@example(text=" #1 (a, b).txt")
@example(text="null")
@example(text="'all in quotes'")
@given(text=st.text(LETTERS, min_size=1))
def test_a_sweep_reads_a_single_value_as_a_run_does(key: str, text: str) -> None:
    alone = OmegaConf.select(composed(*read_arguments([f"{key}={text}"])), key)
    for job in jobs(f"{key}={text}", "seed=1,2"):
        assert OmegaConf.select(composed(*job), key) == alone


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("李明.txt, it's (1).txt,1e3", ["李明.txt", "it's (1).txt", "1e3"]),
        ("null,${x},true", [None, "${x}", "true"]),
        ("'a, b',\"c\",d\\,e", ["a, b", "c", "d,e"]),
        ("choice(a, 'b c')", ["a", "b c"]),
        ("(a,b),[c,d]", ["(a,b)", "[c,d]"]),
    ],
)
def test_commas_outside_brackets_divide_the_values_of_a_sweep(text: str, values: list[str]) -> None:
    assert [composed(*job).init_from for job in jobs(f"init_from={text}")] == values


@settings(max_examples=50)
@given(text=st.text(alphabet=st.sampled_from("\\${}a:. '\"")) | st.text())
def test_stored_text_is_literal(text: str) -> None:
    """Stored settings are resolved, so nothing in them is an interpolation."""
    assert OmegaConf.create({"text": literal(text)}).text == text


def test_a_resume_keeps_text_with_an_interpolation(tmp_path: Path) -> None:
    prompt = read_arguments(["observe.samples.prompt=${x}"])
    stored = OmegaConf.to_yaml(composed(*prompt), resolve=True)
    (tmp_path / "config.yaml").write_text(stored)
    today = composed(*read_arguments(["observe.attention.probe=${y}"]))
    resumed = resumed_config(Run(tmp_path), today, ["observe.attention.probe"])
    observe = build(resumed, TrainConfig).observe
    assert (observe.samples.prompt, observe.attention.probe) == ("${x}", "${y}")


def test_a_stored_config_keeps_its_types(tmp_path: Path) -> None:
    config = composed("data=text", "data.path=x", "optimizer.lr=1", "model.dropout=0")
    stored = tmp_path / "config.yaml"
    stored.write_text(OmegaConf.to_yaml(config, resolve=True))
    assert build(load_run_config(tmp_path / "config.yaml"), TrainConfig) == build(
        config, TrainConfig
    )


@pytest.mark.parametrize(
    "text", ["", "a: [", "data: {name: nothing}", "data: {name: tales}\nunknown: 1", "- 1", "\x00"]
)
def test_a_damaged_stored_config_is_rejected(tmp_path: Path, text: str) -> None:
    stored = tmp_path / "config.yaml"
    stored.write_text(text)
    with pytest.raises(UserError, match=r"config\.yaml"):
        load_run_config(tmp_path / "config.yaml")


def test_a_resume_changes_only_what_is_overridden(tmp_path: Path) -> None:
    stored = composed("optimizer=adamw", "trainer.max_steps=7", "seed=3")
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(stored, resolve=True))
    current = composed("trainer.max_steps=9", "data=shakespeare", "model.n_layers=3")
    resumed = resumed_config(Run(tmp_path), current, ["trainer.max_steps"])
    expected = composed("optimizer=adamw", "trainer.max_steps=9", "seed=3")
    assert build(resumed, TrainConfig) == build(expected, TrainConfig)
    with pytest.raises(UserError, match=r"resume: data\.name, .*cannot change"):
        resumed_config(Run(tmp_path), current, ["data"])
    with pytest.raises(UserError, match=r"resume: model\.n_layers cannot change"):
        resumed_config(Run(tmp_path), current, ["model.n_layers"])


def test_a_run_without_histogram_and_profile_settings_opens(tmp_path: Path) -> None:
    settings = OmegaConf.to_container(composed(), resolve=True)
    assert isinstance(settings, dict)
    for name in ("histograms", "profile"):
        del settings["observe"][name]
    stored = tmp_path / "config.yaml"
    stored.write_text(OmegaConf.to_yaml(OmegaConf.create(settings)))
    opened = build(load_run_config(tmp_path / "config.yaml"), TrainConfig)
    assert opened.observe.histograms.every == opened.observe.profile.steps == 0


def test_the_help_lists_every_choice() -> None:
    header = compose("train", return_hydra_config=True).hydra.help.header
    for group in ("data", "tokenizer", "model", "optimizer", "experiment"):
        listed = next(line for line in header.splitlines() if line.strip().startswith(f"{group}="))
        assert listed.partition("=")[2].strip().split(", ") == options(group)
