"""What a trained model is used for: opening a run, and writing with it."""

from inference.generation import SamplingConfig, generate, sampling_probabilities
from inference.opening import (
    OpenRun,
    each_checkpoint,
    new_model,
    open_run,
)
from inference.results import results
from inference.writer import Writer

__all__ = [
    "OpenRun",
    "SamplingConfig",
    "Writer",
    "each_checkpoint",
    "generate",
    "new_model",
    "open_run",
    "results",
    "sampling_probabilities",
]
