"""The tensors of a folder of safetensors files, which execute nothing when they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from training.weights import read_tensor


class Tensors(Mapping[str, Tensor]):
    """The tensors of safetensors files by name; each access reads one from the disk, so that a
    model is never in memory twice.

    Raises ValueError if a file cannot be read, if two hold the same name, or if a tensor that is
    read has values that are not finite.
    """

    def __init__(self, *files: Path) -> None:
        self._files: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        for path in files:
            with _opened(path) as file:
                for name in file.keys():  # noqa: SIM118 (not a mapping)
                    if name in self._files:
                        raise ValueError(f"{path.name}: {name:.80} is also in another file")
                    view = file.get_slice(name)
                    self._files[name], self.dtypes[name] = path, view.get_dtype()
                    self.shapes[name] = tuple(view.get_shape())

    def __getitem__(self, name: str) -> Tensor:
        return read_tensor(self._files[name], name)

    def __contains__(self, name: object) -> bool:
        return name in self._files  # Mapping's own reads the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _opened(path: Path) -> safe_open:
    try:
        is_file = path.is_file()
    except OSError:  # a name that is too long
        is_file = False
    if not is_file:
        raise ValueError(f"{path.name:.80}: is missing, or is not a file; restore it")
    try:
        return safe_open(path, "pt")
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path.name}: cannot be read ({reason}); restore it") from None
