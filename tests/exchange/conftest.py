"""One thread: a second one makes operations on tiny tensors slower."""

from tests.model.conftest import one_thread

__all__ = ["one_thread"]
