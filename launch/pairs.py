"""The runs of the two sides of a verdict: trained by train.py, or found."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from common.errors import UserError
from common.files import file_name
from common.settings import flat
from launch.idea import Side
from store.code import EXPECTED, ROOT, code_sha256
from store.comparison import differing, settings_sha256
from store.results import Row, find_runs, read_finished, read_row
from store.run import VERDICT, Run
from store.settings import read_settings

BUSY = "another process is"  # in a message of train.py
SECONDS = 5.0  # between looks at whether that process has finished
QUIET = ("observe.terminal=false", "observe.tensorboard=false")  # unless they are given


class Runs:
    """The runs of one side, each trained when it is asked for.

    text: the fingerprint of the corpus.
    label: words for the name of their folder.
    folder: that of the settings, the text, the weights to start from and the code; a run is in a
        folder in it, named after its seed.
    rows: by seed; None for a run that diverged.
    seconds: which those runs took that this process has trained.
    """

    def __init__(self, side: Side, text: str, *label: str) -> None:
        self.side, self.code, self.key = side, code_sha256(), settings_sha256(side.settings)
        rest = hashlib.sha256(f"{self.code} {text} {side.weights}".encode()).hexdigest()
        digits = f"{self.key[:6]}{rest[:6]}"
        task = [side.overrides[name] for name in ("experiment", "data") if name in side.overrides]
        folder = VERDICT / f"{file_name(','.join((*label, *task)))}_{digits}"
        # The one that is there, perhaps from a command with other words.
        self.folder = min(VERDICT.glob(f"*_{digits}"), default=folder)
        self.rows: dict[int, Row | None] = {}
        self.seconds: list[float] = []

    def row(self, seed: int) -> Row | None:
        """The row of the run with a seed, trained if it is not there; None if it diverged.

        Raises UserError if it cannot be trained, and if the code has changed meanwhile.
        """
        if seed not in self.rows:
            if not self.is_finished(seed):
                began = time.monotonic()
                self._train(seed)
                self.seconds.append(time.monotonic() - began)
            self.rows[seed] = None if self._run(seed).diverged_file.exists() else self._read(seed)
        return self.rows[seed]

    def _run(self, seed: int) -> Run:
        return Run(self.folder / f"seed={seed}")

    def folders(self, seeds: Iterable[int]) -> list[Path]:
        """Those of the runs with these seeds that did not diverge."""
        rows = [self.rows[seed] for seed in seeds]
        return [Path(row["run"]) for row in rows if row]

    def is_finished(self, seed: int) -> bool:
        run = self._run(seed)
        return seed in self.rows or run.summary_file.is_file() or run.diverged_file.is_file()

    def _train(self, seed: int) -> None:
        """Start or continue a run, to its end or until it diverges."""
        sources = HydraConfig.get().runtime.config_sources
        process = subprocess.Popen(
            [
                *(sys.executable, str(ROOT / "train.py")),
                *(
                    f"--config-dir={each.path}"
                    for each in sources
                    if each.provider == "command-line"
                ),
                *QUIET,
                *self.side.overrides.values(),
                *(f"seed={seed}", f"run_dir={self.folder}/seed={seed}", "resume=auto"),
            ],
            env={**os.environ, EXPECTED: self.code},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="backslashreplace",
        )
        try:
            _, errors = process.communicate()
        except BaseException:
            process.terminate()  # after which it writes a checkpoint
            process.communicate()
            raise
        last = next(reversed(errors.splitlines()), "")
        if process.returncode == 0 or "training diverged at step" in last:
            return
        if BUSY in last:  # such as another verdict with the same base
            time.sleep(SECONDS)
            if not self.is_finished(seed):
                self._train(seed)
            return
        if not last.startswith("error: "):
            print(errors, end="", file=sys.stderr)
            last = f"{self.folder}/seed={seed}: train.py ended with status {process.returncode}"
        raise UserError(last.removeprefix("error: "))

    def _read(self, seed: int) -> Row:
        """The row of a finished run. Raises UserError if it has become another."""
        path = self._run(seed).path
        row = read_row(path)
        began_with = seed, self.key, self.code
        if row is None or (row["seed"], settings_sha256(row), Run(path).code) != began_with:
            raise UserError(f"{path}: has other settings or code than it began with; move it away")
        return row


class EarlierRuns(Runs):
    """The runs in a folder that ended or diverged, by one code other than that of `now`."""

    def __init__(self, against: str, now: Runs) -> None:
        self.folder, self.seconds = Path(against), []
        try:
            found = _ended(against)
        except UserError as error:
            raise UserError(f"against: {str(error).removeprefix('runs: ')}") from error
        self.rows = {row["seed"]: row if "val_bpb" in row else None for row in found}
        common = {*found[0]} & {*now.side.settings}  # an edit can add settings
        both = [*found, now.side.settings]
        if names := differing([{name: row.get(name) for name in common} for row in both]):
            values = ", ".join(f"{name}={found[0][name]}" for name in names)
            raise UserError(
                f"against: {against} has runs with other settings ({values}); give the same ones"
            )
        if len(self.rows) < len(found):
            raise UserError(f"against: {against} has two runs of one seed; give one of each")
        codes = {Run(Path(row["run"])).code for row in found}
        if len(codes) > 1:
            raise UserError(f"against: {against} has runs of different code; give those of one")
        if codes == {now.code}:
            raise UserError(
                f"against: {against} was trained by the code as it is now; edit the code first"
            )


def _ended(path: str) -> list[Row]:
    """The rows of the finished runs in a folder, and the settings of those that diverged. Raises
    UserError if there are none."""
    runs = [*map(Run, find_runs(path))]
    diverged = [run for run in runs if run.diverged_file.exists()]
    others = [run.path for run in runs if run not in diverged]
    return [
        *(read_finished(others) if others else []),
        *(
            {"run": str(run.path), **flat(read_settings(run.newest_settings_file))}
            for run in diverged
        ),
    ]
