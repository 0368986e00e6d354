"""Which device is chosen, and what is remembered of it."""

from __future__ import annotations

import pytest
import torch

from common.device import choose_device


@pytest.mark.parametrize(("cuda", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_never_mps(monkeypatch: pytest.MonkeyPatch, cuda: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto").type == expected
    assert choose_device("mps").type == "mps"
