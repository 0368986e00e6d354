"""Models on the Hugging Face hub, through huggingface_hub: fetched once, into its own cache."""

from __future__ import annotations

import re
from pathlib import Path

from errors import UserError

FILES = ("*.json", "*.safetensors")  # nothing that executes code when it is opened


def is_hub_name(source: str) -> bool:
    """Whether this can be a name on the hub, such as openai-community/gpt2."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", source, re.ASCII) is not None


def fetch(name: str) -> Path:
    """The folder with the files of a model on the hub. Raises UserError if it cannot be had."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise UserError(
            f"source: {name} is not a folder, and models on the hub need huggingface_hub; give a "
            "folder, or install it: pip install huggingface_hub"
        ) from None
    print(f"Fetching {name} from the Hugging Face hub")
    try:
        return Path(snapshot_download(name, allow_patterns=[*FILES]))
    except (OSError, HfHubHTTPError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(
            f"source: {name} is not a folder, and was not found on the hub ({reason}); give a "
            "folder, or a name on the hub such as openai-community/gpt2"
        ) from error
