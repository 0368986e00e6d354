"""Models on the Hugging Face hub, through huggingface_hub: fetched once, into its own cache."""

from __future__ import annotations

import re
from pathlib import Path

from common.errors import UserError, installing

FILES = ("*.json", "*.safetensors")  # nothing that executes code when it is opened


def is_hub_name(source: str) -> bool:
    """Whether this can be a name on the hub, such as openai-community/gpt2: not a path into a
    folder that exists, and none below runs/."""
    owner = source.partition("/")[0]
    is_name = re.fullmatch(r"[\w.-]+/[\w.-]+", source, re.ASCII) is not None
    return is_name and owner != "runs" and not Path(owner).exists()


def fetch(name: str) -> Path:
    """The folder with the files of a model on the hub. Raises UserError if it cannot be had."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError(
            f"source: {name} is not a folder, and models on the hub need huggingface_hub; give a "
            f"folder, or install it with {installing('convert')}"
        ) from None
    print(f"Fetching {name} from the Hugging Face hub")
    try:
        return Path(snapshot_download(name, allow_patterns=[*FILES]))
    except (OSError, ValueError) as error:
        raise UserError(
            f"source: {name} is not a folder here, and could not be fetched: "
            f"{' '.join(str(error).split())[:160]}; give a folder, or a name on the hub such as "
            "openai-community/gpt2"
        ) from error
