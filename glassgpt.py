"""What scripts and notebooks use of glassgpt, under one name.

    import glassgpt

    run = glassgpt.open_run("latest")
    print(run.sample("Once"))

Raises ImportError if a file or folder of the same name as one of the project's packages, such as
`data`, comes first on the import path.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_ROOT = Path(__file__).resolve().parent
_PACKAGES = (
    *("common", "data", "exchange", "inference", "launch", "live", "model", "observe", "store"),
    "training",
)


def _check_packages() -> None:
    for name in _PACKAGES:
        spec = find_spec(name)
        assert spec is not None
        # A folder without __init__.py is a package, too.
        found = spec.origin or next(iter(spec.submodule_search_locations or ()))
        if _ROOT not in Path(found).resolve().parents:
            raise ImportError(
                f"`import {name}` finds {found}, and not {_ROOT / name} of glassgpt; rename it, or "
                "run from another folder"
            )


_check_packages()

from inference.opening import OpenRun, Reading, open_run  # noqa: E402
from live.notebook import look  # noqa: E402
from model import (  # noqa: E402
    GPT,
    Circuit,
    ModelConfig,
    ablate,
    circuit,
    edit,
    explain_score,
    mean_outputs,
    patch,
    record_attention,
    wiring,
    wiring_matrices,
)
from store.results import results  # noqa: E402
from tensorboard_attention import add_attention, show  # noqa: E402
from tensorboard_attention.twins import match_heads  # noqa: E402

__all__ = [
    "GPT",
    "Circuit",
    "ModelConfig",
    "OpenRun",
    "Reading",
    "ablate",
    "add_attention",
    "circuit",
    "edit",
    "explain_score",
    "look",
    "match_heads",
    "mean_outputs",
    "open_run",
    "patch",
    "record_attention",
    "results",
    "show",
    "wiring",
    "wiring_matrices",
]
