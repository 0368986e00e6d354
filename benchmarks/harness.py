"""What the benchmarks share: arguments, processes, rounds in turn, tables, and equal models.

Knows nothing of what a benchmark measures. Importing it imports neither torch nor the project, so
that a benchmark can set how PyTorch's threads wait (common/startup.py) first.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from launch.schema import TrainConfig

ROOT = Path(__file__).resolve().parent.parent
TRAIN = [sys.executable, str(ROOT / "train.py")]
GPT2_BLOCK = ("model=nano_gpt2", "model.bias=false")  # nanoGPT's quick starts have no biases either
Side = TypeVar("Side")
Result = TypeVar("Result")


def make_parser(doc: str, rounds: int) -> argparse.ArgumentParser:
    """A parser with the first line of a benchmark's docstring as description, and `--rounds`."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=rounds, help="default: %(default)s")
    return parser


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table in Markdown, as RESULTS.md shows it, each row as soon as it is known."""
    columns = list(columns)
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def in_turn(
    sides: Iterable[Side], rounds: Iterable[int], measure: Callable[[Side, int], Result]
) -> dict[Side, list[Result]]:
    """Results of each side, by round. The sides alternate: a slow phase affects all of them."""
    results: dict[Side, list[Result]] = {side: [] for side in sides}
    for number in rounds:
        for side, found in results.items():
            found.append(measure(side, number))
    return results


def spread(values: Collection[float], spec: str) -> str:
    """Median, minimum and maximum, each formatted with `spec`: "3.8 (3.7 to 4.1)"."""
    return f"{median(values):{spec}} ({min(values):{spec}} to {max(values):{spec}})"


def run(command: list[str], folder: Path, **variables: str) -> float:
    """Seconds of a whole process, which must succeed, with additional environment variables."""
    environment = {**os.environ, **variables}
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - began


def train(*settings: str) -> tuple[float, dict[str, Any]]:
    """Seconds of a whole `python train.py` with a cold cache, and its summary."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds = run([*TRAIN, "run_dir=run", *settings], folder)
        return seconds, json.loads((folder / "run/summary.json").read_text())


def in_child(function: Callable[..., Result], *arguments: Any) -> Result:
    """What a function of a script returns in a new process, in which nothing is imported yet."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


class Shape(NamedTuple):
    """The sizes that a model of nanoGPT and one of this project share, in nanoGPT's order."""

    context_length: int
    vocab_size: int
    n_layers: int
    n_heads: int
    d_model: int


def configure(shape: Shape, *settings: str) -> TrainConfig:
    """The config of a run of train.py with these settings, as its command line reads them, and a
    model of this shape, vocabulary aside."""
    import hydra

    from common.settings import all_settings, build
    from launch.cli import VERSION, plain_values
    from launch.quoting import quote
    from launch.schema import TrainConfig

    sizes = [f"model.{name}={n}" for name, n in shape._asdict().items() if name != "vocab_size"]
    types = all_settings(TrainConfig)
    overrides = [quote(setting, types) for setting in (*settings, *sizes)]
    with hydra.initialize_config_dir(str(ROOT / "configs"), **VERSION):
        return build(TrainConfig, plain_values(hydra.compose("train", overrides)))


def nanogpt(checkout: Path, shape: Shape) -> Any:
    """A model of this shape from `model.py` of a nanoGPT checkout, which the user provides."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", checkout / "model.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module.GPT(module.GPTConfig(*shape, dropout=0.0, bias=False))
