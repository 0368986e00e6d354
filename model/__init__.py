"""The model: attention, the block stack, the cache, and the recording and editing of attention.

Promises: tensors of token ids in, tensors out. Knows nothing of text, training or output formats.
"""

from model.attention import (
    AttentionSteps,
    KVCache,
    causal_mask,
    explicit_attention,
    fused_attention,
)
from model.circuit import Circuit, circuit
from model.config import ModelConfig
from model.explain import explain_score, wiring, wiring_matrices
from model.gpt import GPT, eval_mode
from model.hooks import ablate, edit, mean_outputs, patch, record_attention
from model.loss import cross_entropy, linear_cross_entropy
