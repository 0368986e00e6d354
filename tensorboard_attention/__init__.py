"""Attention maps in TensorBoard, for any transformer model.

`add_attention` logs maps, the Attention tab shows them, `show` displays them in a notebook, and
`page` writes them to one HTML file.
Importing this package does not import torch.
"""

from tensorboard_attention.export import page
from tensorboard_attention.notebook import show
from tensorboard_attention.summary import Guesses, add_attention, attention_summary, encode
from tensorboard_attention.twins import match_heads

__all__ = [
    "Guesses",
    "add_attention",
    "attention_summary",
    "encode",
    "match_heads",
    "page",
    "show",
]
