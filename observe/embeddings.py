"""Token embeddings for TensorBoard's Projector tab: one labelled point per token.

Promises: the files contain the weights of the last checkpoint. A resume replaces them, and they
name each other relative to their folder, so that a run may be moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from common.files import replace_text
from observe.context import RunContext
from observe.figures import token_label
from training.callback import Callback

if TYPE_CHECKING:
    from training.trainer import Trainer

# Where the projector looks for it in a run (tensorboard/plugins/projector/metadata.py).
FOLDER = Path("plugins") / "org_tensorflow_tensorboard_projector"
MAX_TOKENS = 10_000  # the browser computes the layout, which takes long for more
CONFIG = """\
embeddings {
  tensor_name: "token_embedding"
  tensor_path: "token_embedding.tsv"
  metadata_path: "token_labels.tsv"
}
"""


class Embeddings(Callback):
    """Writes the embeddings of the first MAX_TOKENS tokens when the run ends or is stopped."""

    def __init__(self, context: RunContext) -> None:
        self.folder, self.context = context.folder / FOLDER, context
        tokenizer, n_tokens = context.dataset.tokenizer, context.model.vocab_size
        self.labels = projector_labels(
            [tokenizer.decode_bytes([token]) for token in range(min(n_tokens, MAX_TOKENS))]
        )
        self.points: Float[Tensor, "token d_model"] | None = None

    def on_start(self, trainer: Trainer) -> None:
        if trainer.state.step:  # those of the checkpoint that is continued
            self._keep()

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        self._keep()

    def _keep(self) -> None:
        with self.context.stopwatch:
            weight = self.context.model.token_embedding.weight.detach()
            # Not written yet: as text they take longer than the checkpoint of a small model.
            self.points = weight[: len(self.labels)].float().cpu().clone()

    def on_end(self, trainer: Trainer) -> None:
        if self.points is None:
            return
        row = "\t".join(["%.5g"] * self.points.shape[1])
        for folder in (self.folder.parent, self.folder):  # but not that of the run: it may be moved
            folder.mkdir(exist_ok=True)
        # The projector opens the config first, so it is written last.
        for name, lines in (
            ("token_labels.tsv", self.labels),
            ("token_embedding.tsv", [row % tuple(point.tolist()) for point in self.points]),
            ("projector_config.pbtxt", CONFIG.splitlines()),
        ):
            replace_text(self.folder / name, "".join(f"{line}\n" for line in lines))


def projector_labels(tokens: Sequence[bytes]) -> list[str]:
    """One label per token, each a line with one column.

    The projector skips empty lines, which would shift all later labels: a token without bytes (a
    special or unused one) is labelled with its id.
    """
    return [
        token_label(token, longest=100) if token else f"<token·{number}>"
        for number, token in enumerate(tokens)
    ]
