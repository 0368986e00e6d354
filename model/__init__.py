"""The model: attention, the block stack, the cache, and the recording and ablation of attention.

Promises: tensors of token ids in, tensors out. Knows nothing of text, training or output formats.
"""

from model.attention import (
    AttentionSteps,
    causal_mask,
    document_mask,
    explicit_attention,
    fused_attention,
)
from model.cache import KVCache, StaticKVCache
from model.config import ModelConfig
from model.gpt import GPT
from model.loss import cross_entropy, linear_cross_entropy
from model.recording import ablate, ablate_each_head, record_attention
from model.sharding import full_tensor, gathered, is_sharded, own_rows

__all__ = [
    "GPT",
    "AttentionSteps",
    "KVCache",
    "ModelConfig",
    "StaticKVCache",
    "ablate",
    "ablate_each_head",
    "causal_mask",
    "cross_entropy",
    "document_mask",
    "explicit_attention",
    "full_tensor",
    "fused_attention",
    "gathered",
    "is_sharded",
    "linear_cross_entropy",
    "own_rows",
    "record_attention",
]
