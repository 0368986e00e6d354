"""Attention maps in TensorBoard, for any model: `add_attention` logs them, the Attention tab shows
them. Depends on nothing else of this project."""

from tensorboard_attention.summary import add_attention

__all__ = ["add_attention"]
