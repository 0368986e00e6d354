"""The weights in a folder of Hugging Face transformers, from and to those of a checkpoint.

Reading executes nothing, and refuses what is not exactly the model that config.json describes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from common.errors import reason
from exchange.families import BUFFERS, PREFIXES, Part, family, parts
from model import GPT, ModelConfig
from store.weights import read_tensor

HEAD = "lm_head.weight"
WEIGHTS, SHARDS = "model.safetensors", "model-*-of-*.safetensors"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def read_tensors(*files: Path) -> dict[str, Tensor]:
    """All tensors of safetensors files. Raises ValueError if a file cannot be read, if two have the
    same tensor, or if a value is not finite."""
    found: dict[str, Tensor] = {}
    for path in files:
        try:
            with safe_open(path, "pt") as file:
                names = [*file.keys()]
        except (OSError, SafetensorError) as error:
            problem = f"{path.name:.80}: cannot be read ({reason(error)}); restore it"
            raise ValueError(problem) from None
        for name in names:
            if name in found:  # of an earlier model in the same folder
                raise ValueError(
                    f"{path.name:.80}: has {name:.80}, as another file has; remove one"
                )
            found[name] = read_tensor(path, name)
    return found


def dtype_name(file: Path) -> str:
    """The name of the dtype of the tensors in a safetensors file; float32 if there is none."""
    with safe_open(file, "pt") as stored:
        first = stored.get_slice(next(iter(stored.keys()))).get_dtype()
    return {"BF16": "bfloat16", "F16": "float16"}.get(first, "float32")


def to_hugging_face(
    config: ModelConfig, weights: Mapping[str, Tensor], dtype: str | None
) -> dict[str, Tensor]:
    """The tensors of transformers from the parameters of ours, by name. `dtype` is None to keep
    theirs. Raises ValueError for a value that is too large for it."""
    return {
        part.name: _convert(part.name, tensor.T if part.transposed else tensor, dtype)
        for part, tensor in joined(config, weights)
    }


def joined(config: ModelConfig, weights: Mapping[str, Tensor]) -> Iterator[tuple[Part, Tensor]]:
    """Every tensor of transformers, from the parameters of ours, not transposed."""
    for part in parts(config):
        if part.parameters[0] in weights:
            yield part, torch.cat([weights[name] for name in part.parameters])
        else:  # a bias that our model does not have
            like = [weights[name.removesuffix("bias") + "weight"] for name in part.parameters]
            yield part, torch.zeros(sum(map(len, like)), dtype=like[0].dtype)


def read_weights(
    folder: Path, config: ModelConfig, vocab_size: int, dtype: str | None
) -> dict[str, Tensor]:
    """Our parameters from the weights in a folder. `dtype` is None to keep theirs.

    Raises ValueError if their names, types and shapes are not those of the model.
    """
    stored, shapes = read_tensors(*_files(folder)), _parameter_shapes(config, vocab_size)
    wanted = list(parts(config))
    prefix = PREFIXES[family(config)]
    if not any(name.startswith(prefix) for name in stored):  # stored without its head
        wanted = [part._replace(name=part.name.removeprefix(prefix)) for part in wanted]
    _check_names(stored, [part.name for part in wanted])
    found = {}
    for part in wanted:
        tensor = stored[part.name].T if part.transposed else stored[part.name]
        rows = [shapes[name][0] for name in part.parameters]
        shape = (sum(rows), *shapes[part.parameters[0]][1:])
        if tensor.shape != shape:
            needed = shape[::-1] if part.transposed else shape
            raise ValueError(
                f"{part.name}: has the shape {[*stored[part.name].shape]}; the "
                f"model in config.json needs {[*needed]}; choose another folder"
            )
        for name, piece in zip(part.parameters, tensor.split(rows), strict=True):
            found[name] = _convert(name, piece, dtype)
    return found


def _parameter_shapes(config: ModelConfig, vocab_size: int) -> dict[str, torch.Size]:
    with torch.device("meta"):  # takes no memory
        model = GPT(config, vocab_size)
    return {name: parameter.shape for name, parameter in model.named_parameters()}


def _convert(name: str, tensor: Tensor, dtype: str | None) -> Tensor:
    converted = tensor.to(DTYPES[dtype]) if dtype else tensor
    if converted.dtype != tensor.dtype and not converted.isfinite().all():
        raise ValueError(
            f"dtype: {name} has values beyond the range of {dtype}; give float32 or bfloat16"
        )
    return converted


def _check_names(stored: Mapping[str, Tensor], wanted: list[str]) -> None:
    """Raises ValueError for tensors that are missing, or that the model does not have."""
    for name in wanted:
        if name not in stored:
            raise ValueError(f"{name}: is missing among the weights; choose another folder")
    for name in stored.keys() - {*wanted}:
        if name == HEAD:  # a copy of the embedding, with which it is tied
            if not torch.equal(stored[name], stored[wanted[0]]):
                raise ValueError(
                    f"{name}: is not the embedding, although tie_word_embeddings is "
                    "true in config.json; choose another folder"
                )
        elif not BUFFERS.fullmatch(name):
            raise ValueError(
                f"{name:.80}: is not a part of the model in config.json; choose another folder"
            )


def _files(folder: Path) -> list[Path]:
    """The files of weights in a folder."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if shards := sorted(folder.glob(SHARDS)):
        return shards
    others = sorted(path.name for path in folder.glob("*.safetensors") if path.is_file())
    rename = f"rename {others[0]:.80} if it has the weights, or " if others else ""
    raise ValueError(
        f"{WEIGHTS}: is missing, or is not a file; {rename}save the model in this format"
    )
