"""The model: attention, the block stack, and what runs on it (cache, generation, recording).

Promises: tensors of token ids in, tensors out. Knows nothing of text, training or screens.
"""

from model.attention import causal_mask, explicit_attention, fused_attention
from model.cache import KVCache
from model.config import ModelConfig
from model.generation import check_sampling, generate, sampling_probabilities
from model.gpt import GPT
from model.recording import record_attention

__all__ = [
    "GPT",
    "KVCache",
    "ModelConfig",
    "causal_mask",
    "check_sampling",
    "explicit_attention",
    "fused_attention",
    "generate",
    "record_attention",
    "sampling_probabilities",
]
