"""The utilization of the devices, against its formula; nothing is shown where a peak is unknown."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from observe.context import RunContext
from observe.measured import Measured
from observe.metrics_file import MetricsFile
from observe.peaks import find_peak
from observe.tensorboard import TensorBoard, open_events
from observe.terminal import RunConsole, Terminal
from tests.observe.conftest import run_context, trainer_at
from training.callback import StepMetrics, Summary
from training.distributed import Ranks

METRICS = StepMetrics(2.0, 0.7, 0.01, 1.0, 640, 3200.0)
SUMMARY = Summary(1.5, 0.55, 5000, 1.4, 0.52, 5000, 1000, 64000, 20.0, 3200.0, 935296, 0)


def expected_mfu(context: RunContext, n_devices: int, peak: float) -> float:
    """6 N + 12 L H Q T operations per token, for the model of `run_context`."""
    config, weights = context.model.config, 256 * 4  # the unembedding
    assert (config.mlp, config.d_model, config.context_length) == ("swiglu", 4, 8)
    weights += 4 * 4 * 4 + 3 * 4 * config.d_mlp  # of one layer: attention, and the MLP
    return (6 * weights + 12 * 1 * 1 * 4 * 8) * 3200 / (n_devices * peak)


@pytest.mark.parametrize("n_devices", [1, 4])
@pytest.mark.parametrize("peak", [None, 2.5e8])  # of the device, in FLOP/s
def test_speed_is_reported_where_it_is_known(
    tmp_path: Path, n_devices: int, peak: float | None
) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    given = "null" if peak is None else peak / 1e12
    context = run_context(tmp_path, f"trainer.peak_tflops={given}")
    with pytest.raises(ValueError, match=r"^peak_tflops: 0"):
        replace(context.config.trainer, peak_tflops=0.0)
    ranks = Ranks(world_size=n_devices)
    out = io.StringIO()
    console = RunConsole(file=out, width=200, markup=False, highlight=False)
    terminal = Terminal(context, Measured(context), console)
    terminal.last_line = -1e9  # a line is due
    trainer = trainer_at(context, 10, ranks=ranks)
    for each in (
        MetricsFile(context, Measured(context)),
        TensorBoard(context, Measured(context), writer := open_events(tmp_path)),
        terminal,
    ):
        each.on_start(trainer_at(context, 0, ranks=ranks))
        each.on_metrics(trainer, METRICS)
        each.on_step(trainer)
    trainer.summary = SUMMARY
    terminal.on_end(trainer)
    writer.close()
    expected = {"tokens_per_second": 3200.0}
    shown = "3,200 tokens/s"
    if n_devices > 1:
        expected["tokens_per_second_per_device"] = 800.0
        shown += ", 800 per device"
    if peak is not None:
        expected["mfu"] = expected_mfu(context, n_devices, peak)
        assert 0.001 < expected["mfu"] < 1
        shown += f", {100 * expected['mfu']:.2f}% MFU"
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    names = {name for name in line if name == "mfu" or name.startswith("tokens_per")}
    assert {name: line[name] for name in names} == pytest.approx(expected)
    logged = EventAccumulator(str(tmp_path)).Reload()
    scalars = [tag for tag in logged.Tags()["scalars"] if tag.startswith("speed/")]
    assert {tag[6:]: logged.Scalars(tag)[0].value for tag in scalars} == pytest.approx(expected)
    assert f"  {shown}" in out.getvalue() and f"({shown})\n" in out.getvalue()
    assert ("MFU" in out.getvalue()) == (peak is not None)


@pytest.mark.parametrize(
    ("name", "bf16", "fp32"),
    [
        ("NVIDIA H100 80GB HBM3", 989.5e12, 67e12),
        ("NVIDIA H100 PCIe", 756.5e12, 51e12),
        ("NVIDIA A100-SXM4-80GB", 312e12, 19.5e12),
        ("A100-SXM4-40GB", 312e12, 19.5e12),
        ("NVIDIA A100 80GB PCIe", 312e12, 19.5e12),
        ("NVIDIA L4", 121e12, 30.3e12),
        ("NVIDIA L40S", None, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None),
        ("Tesla T4", 65e12, 8.1e12),
    ],
)
def test_peaks_of_gpus_go_by_their_whole_name(
    monkeypatch: pytest.MonkeyPatch, name: str, bf16: float | None, fp32: float | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert find_peak(torch.device("cuda"), in_16_bits=True) == bf16
    assert find_peak(torch.device("cuda"), in_16_bits=False) == fp32
    assert find_peak(torch.device("cpu"), in_16_bits=True) is None
