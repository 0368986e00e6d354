"""What scripts and notebooks use of glassgpt, under one name.

    import glassgpt

    run = glassgpt.open_run("latest")
    print(run.sample("Once"))

Raises ImportError if another module that comes first on the import path has the name of a package
that this file needs, such as `data`; rename it.
"""

from inference.opening import OpenRun, Reading, open_run
from live.notebook import look
from model import (
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
from store.results import results
from tensorboard_attention import add_attention, show
from tensorboard_attention.twins import match_heads

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
