"""What watching attention costs: the time to draw a run's maps against the time of its loop.

    python benchmarks/attention_maps.py RUN...

Draws as often as the run drew, in a fresh process, with Matplotlib's import. A run with maps
against one without would not show it: two equal runs differ by more on a shared machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

ROUNDS = 5


def draw(path: str) -> float:
    """Seconds for all drawings of the run at `path`."""
    import torch
    from torch.utils.tensorboard import SummaryWriter

    from observe.attention import MAX_PROBE_TOKENS, AttentionMaps
    from sample import open_model

    config, tokenizer, model = open_model(path, "last", torch.device("cpu"))
    tokens = tokenizer.encode("Once there was a fox. " * 9)[:MAX_PROBE_TOKENS]
    pairs = [(token, tokenizer.decode_bytes([token])) for token in tokens]
    every, steps = config.observe.attention.every, config.trainer.max_steps
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        maps = AttentionMaps(writer, model, pairs, every)
        began = time.perf_counter()
        maps.on_start(0)
        for step in range(every, steps + 1, every):
            maps.on_step(step, None)
        return time.perf_counter() - began


def main() -> None:
    for path in sys.argv[1:]:
        loop = json.loads((Path(path) / "summary.json").read_text())["seconds"]
        child = [sys.executable, __file__, "--draw", path]
        times = [float(subprocess.check_output(child)) for _ in range(ROUNDS)]
        middle = statistics.median(times)
        print(
            f"{path}: maps {middle:.2f} s (median of {ROUNDS}, {min(times):.2f} to "
            f"{max(times):.2f}), {middle / loop:.1%} of {loop:.0f} s in the loop"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--draw"]:
        print(draw(sys.argv[2]))
    else:
        main()
