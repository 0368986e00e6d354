"""The hyperparameters and the result of a run, for TensorBoard's HParams tab.

Promises: lists the settings that people compare, and of the others those that the run changes and
that can change what is trained or how fast; with the values that were used. Booleans are booleans.
Settings that are null have no value.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary as Event

    from observe.observed import ObservedRun
    from training.observer import Summary

# Those that people compare: always listed.
COMPARED = (
    *("seed", "data.name", "tokenizer.name", "tokenizer.vocab_size"),
    *("model.n_layers", "model.n_heads", "model.d_model", "model.context_length"),
    *("optimizer.name", "optimizer.lr", "trainer.max_steps", "trainer.batch_size"),
)
# Listed where a run changes them: names, or their beginnings. No paths, and no settings of what is
# saved, measured or shown.
CHANGEABLE = (
    *("data.n_bytes", "tokenizer.", "model.", "optimizer."),
    *("trainer.grad_accumulation", "trainer.max_grad_norm"),
    *("trainer.precision", "trainer.compile", "trainer.parallel"),
)
# The tab takes the list of one run for all. So that no run seems to have a setting that it changes
# at its default, each lists the changed others also as one text.
OTHER = "other settings"
# The tab shows five columns at first: what the command line varies, and then some of these.
FIRST = ("optimizer.lr", "model.n_layers", "model.d_model", "data.name", OTHER)
# Tags of the result and their titles. The tab shows the first five at first.
METRICS = {
    "result/bpb": "bits per byte",
    "result/percent_above_floor": "% above the floor",
    "result/loss": "nats per token",
    "result/parameters": "parameters",
    "result/seconds": "seconds",
    "result/tokens_per_second": "tokens per second",
}


def result(summary: Summary) -> dict[str, float]:
    """The metrics of a finished run by tag, as scalars, from which the tab reads them."""
    found = {
        "result/bpb": summary.val_bpb,
        "result/loss": summary.val_loss,
        "result/parameters": summary.parameters,
        "result/seconds": summary.seconds,
        "result/tokens_per_second": summary.tokens_per_second,
    }
    if summary.floor_bpb:
        found["result/percent_above_floor"] = 100 * (summary.val_bpb / summary.floor_bpb - 1)
    return found


def hyperparameters(observed: ObservedRun) -> dict[str, bool | int | float | str]:
    """Hyperparameters by their full names, with derived sizes of the model in the place of nulls.

    Texts that are not UTF-8 are escaped.
    """
    model = {f"model.{name}": value for name, value in asdict(observed.model.config).items()}
    settings: dict[str, Any] = {**observed.settings, **model}
    found = {
        name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for name, value in settings.items()
        if name.startswith((*COMPARED, *CHANGEABLE)) and value is not None
    }
    others = [name for name in found if name in observed.changed and name not in COMPARED]
    texts = [f"{name.rpartition('.')[2]}={_text(found[name])}" for name in others]
    return {**found, OTHER: ", ".join(texts) or "default"}


def _text(value: bool | int | float | str) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def hparams_events(observed: ObservedRun) -> Event:
    """What the tab reads of a finished run, in addition to the scalars of its result."""
    from tensorboard.compat.proto.summary_pb2 import Summary as Event
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.api_pb2 import Experiment, MetricInfo, MetricName, Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import (
        HParamsPluginData,
        SessionEndInfo,
        SessionStartInfo,
    )

    values = hyperparameters(observed)
    started = SessionStartInfo(start_time_secs=time.time())
    for name, value in values.items():
        kind = {bool: "bool_value", str: "string_value"}.get(type(value), "number_value")
        setattr(started.hparams[name], kind, value)
    metrics = [
        MetricInfo(name=MetricName(tag=tag), display_name=title) for tag, title in METRICS.items()
    ]
    experiment = Experiment(hparam_infos=_infos(values, observed), metric_infos=metrics)
    ended = SessionEndInfo(status=Status.Value("STATUS_SUCCESS"), end_time_secs=time.time())
    parts = {
        metadata.EXPERIMENT_TAG: HParamsPluginData(experiment=experiment),
        metadata.SESSION_START_INFO_TAG: HParamsPluginData(session_start_info=started),
        metadata.SESSION_END_INFO_TAG: HParamsPluginData(session_end_info=ended),
    }
    return Event(
        value=[
            Event.Value(
                tag=tag,
                metadata=metadata.create_summary_metadata(part),
                tensor=metadata.NULL_TENSOR,
            )
            for tag, part in parts.items()
        ]
    )


def _infos(values: Mapping[str, bool | int | float | str], observed: ObservedRun) -> list[Any]:
    """The names and types of the hyperparameters that are listed.

    The tab takes those of one run for all runs, and shows those first that are said to differ. All
    runs have the values of all hyperparameters, so that each has one wherever one is listed.
    """
    from tensorboard.plugins.hparams.api_pb2 import DataType, HParamInfo

    groups = {each.removesuffix(".name") for each in values if each.endswith(".name")}
    given = {f"{each}.name" if each in groups else each for each in observed.varied}
    given &= values.keys()
    first = [*dict.fromkeys([*given, *FIRST])][: max(len(given), len(FIRST))]
    infos = []
    listed = {*COMPARED, OTHER, *given, *observed.changed}
    for name in (name for name in values if name in listed):
        value = values[name]
        kind = {bool: "BOOL", str: "STRING"}.get(type(value), "FLOAT64")
        info = HParamInfo(name=name, type=DataType.Value(f"DATA_TYPE_{kind}"))
        info.differs = name in first
        if kind == "BOOL":
            for each in (False, True):
                info.domain_discrete.values.add(bool_value=each)
        infos.append(info)
    return infos
