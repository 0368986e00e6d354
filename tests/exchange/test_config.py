"""config.json: what our models are is translated, and everything else is refused by name."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, LlamaConfig, MistralConfig, Qwen3Config

from exchange.config import DEFAULTS, ONLY, from_config, read_config, to_config
from exchange.families import family
from launch.schema import preset
from tests.exchange.families import FAMILIES, JSON, configs

LLAMA, GPT2 = JSON["llama"], JSON["gpt2"]
QWEN3 = {**LLAMA, "model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 8}
MISTRAL = {**QWEN3, "model_type": "mistral"}


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=20)
@given(data=st.data())
def test_the_settings_come_back(name: str, data: st.DataObject) -> None:
    config = expected = data.draw(configs(name))
    assert family(config) == name
    if name == "gpt2":  # whose biases are zero where there were none
        changes: dict[str, Any] = {"bias": True, "rope_theta": 1e4}
        changes |= {"dropout": 0.0, "attention_dropout": None}
        expected = preset("model", "nano_gpt2", **{**vars(config), **changes})
    assert from_config(json.loads(json.dumps(to_config(config, 77)))) == (expected, 77)


@pytest.mark.parametrize(
    ("name", "changes", "setting"),
    [
        ("nano", {"position": "learned"}, "position"),
        ("nano", {"bias": True}, "bias"),
        ("nano", {"qk_norm": False, "n_heads": 3, "d_model": 8, "d_head": 4}, "d_model"),
        ("nano_gpt2", {"mlp": "swiglu"}, "mlp"),
        ("nano_gpt2", {"n_kv_heads": 2}, "n_kv_heads"),
    ],
)
def test_what_no_family_is_names_the_setting(
    name: str, changes: dict[str, Any], setting: str
) -> None:
    with pytest.raises(ValueError, match=rf"^model\.{setting}: "):
        family(preset("model", name, **changes))


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({}, "model_type"),
        (MISTRAL, "sliding_window"),  # which is 4096 where it is left out
        ({"model_type": "x" * 10**6}, "model_type"),
        ({**LLAMA, "rope_parameters": {"rope_type": "yarn", "factor": 4}}, "rope_parameters"),
        ({**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
        (
            {**LLAMA, "rope_scaling": {"rope_type": "default", "mrope_section": [1]}},
            "rope_scaling",
        ),
        ({**LLAMA, "max_position_embeddings": 10**9}, "max_position_embeddings"),
        ({**LLAMA, "attention_bias": True}, "mlp_bias"),
        ({**LLAMA, "head_dim": 7}, "head_dim"),
        ({**QWEN3, "layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({**GPT2, "n_head": 5}, "n_head"),
        ({**GPT2, "n_layer": 2.0}, "n_layer"),
        ({**GPT2, "vocab_size": 10**18}, "vocab_size"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(
    tmp_path: Path, values: dict[str, Any], key: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=rf"^config\.json: {key}\b") as caught:
        read_config(tmp_path)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [GPT2, LLAMA, QWEN3, {**MISTRAL, "sliding_window": None}],
    ids=["gpt2", "llama", "qwen3", "mistral"],
)
def test_a_value_of_a_wrong_type_is_refused_by_name(values: dict[str, Any]) -> None:
    kind = values["model_type"]
    others = () if kind == "gpt2" else ("rope_parameters", "rope_scaling", "layer_types")
    wrong: list[Any] = ["x", [1], {"a": 1}, 10**400, [[]]]
    for key, value in product({*DEFAULTS[kind], *ONLY[kind], *others}, wrong):
        with pytest.raises(ValueError, match=f"^{key}: "):
            from_config({**values, key: value})


@pytest.mark.parametrize(
    "text", ["{", "[]", "[" * 10**5, "{}" + " " * (1 << 20)], ids=["cut", "list", "deep", "large"]
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"^config\.json: "):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "scaling",
    [
        *({}, {"rope_type": "default"}, {"type": "default"}, {"type": "linear", "factor": 1.0}),
        {"rope_type": "default", "type": "default", "factor": 1, "rope_theta": 77.0},
    ],
)
def test_a_scaling_that_is_none_is_read_as_transformers_does(scaling: dict[str, Any]) -> None:
    values = {**LLAMA, "rope_theta": 500.0, "rope_scaling": scaling}
    theirs = LlamaConfig(**values).rope_parameters
    assert theirs is not None and from_config(values)[0].rope_theta == theirs["rope_theta"]


def test_what_transformers_writes_is_read() -> None:
    """Also what it has left out, which has its defaults."""
    mistral = MistralConfig(sliding_window=None)
    for config in (GPT2Config(), LlamaConfig(), Qwen3Config(), mistral):
        values = config.to_dict()
        optional = DEFAULTS[values["model_type"]].keys() - {"head_dim", "sliding_window"}
        if config is not mistral:
            optional -= {"num_key_value_heads"}
        short = {key: value for key, value in values.items() if key not in optional}
        assert from_config(short) == from_config(values)
