"""Token embeddings for TensorBoard's Projector tab: one point a token, under its label.

Promises: files that show the weights of the last checkpoint. They are replaced, so that a resume
doubles nothing, and name one another relative to their folder, so that a run may move.
Knows nothing of events, and needs no TensorBoard to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from model import GPT
from observe.figures import token_label
from training.observer import Observer, Summary

# Where the projector looks in every run (tensorboard/plugins/projector/metadata.py).
FOLDER = Path("plugins") / "org_tensorflow_tensorboard_projector"
MAX_TOKENS = 10_000  # the browser lays the points out, and takes long over more
CONFIG = """\
embeddings {
  tensor_name: "token_embedding"
  tensor_path: "token_embedding.tsv"
  metadata_path: "token_labels.tsv"
}
"""


class Embeddings(Observer):
    """Writes into the folder `run`, when it ends or is stopped, the embeddings of the first
    MAX_TOKENS tokens.

    `tokens` are the bytes of the tokens, in the order of their ids.
    """

    def __init__(self, run: Path, model: GPT, tokens: Sequence[bytes]) -> None:
        self.folder, self.model = run / FOLDER, model
        self.labels = projector_labels(tokens[:MAX_TOKENS])
        self.points: Float[Tensor, "token d_model"] | None = None

    def on_checkpoint(self, step: int, path: Path) -> None:
        # Kept, not written: as text they would take longer than a small model's whole checkpoint.
        weight = self.model.token_embedding.weight[: len(self.labels)]
        self.points = weight.detach().float().cpu().clone()

    def on_end(self, step: int, summary: Summary | None) -> None:
        if self.points is None:
            return
        row = "\t".join(["%.5g"] * self.points.shape[1])
        self.folder.mkdir(parents=True, exist_ok=True)
        # What the projector opens first is written last: it never finds a file missing.
        for name, lines in (
            ("token_labels.tsv", self.labels),
            ("token_embedding.tsv", [row % tuple(point.tolist()) for point in self.points]),
            ("projector_config.pbtxt", CONFIG.splitlines()),
        ):
            temporary = self.folder / f".{name}"
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            temporary.replace(self.folder / name)


def projector_labels(tokens: Sequence[bytes]) -> list[str]:
    """A label for every token that the projector takes as one line of one column.

    It skips empty lines, which would move all later labels: a token without bytes (a special or
    unused one) is shown by its id.
    """
    return [
        token_label(token, longest=100) if token else f"<token·{number}>"
        for number, token in enumerate(tokens)
    ]
