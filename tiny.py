"""A whole GPT in one file, for reading: training, model, attention and sampling, in plain PyTorch.

    python tiny.py notes.txt     trains on a text for some minutes on a CPU, then writes a sample

This is the default model of train.py with bytes as tokens. From the same weights it computes the
same logits, and with AdamW it takes the same steps. The rest of the project adds longer tokens, a
faster optimizer, runs that can be resumed, and tools for looking inside. Shapes are in parentheses.
Without a file, it trains on the README. Prints losses and a sample; exit status 0, 1 for no text.
"""

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW

VOCAB, CONTEXT = 256, 256  # a token is a byte; the model sees so many tokens at once
N_LAYERS, N_HEADS, D_MODEL = 2, 4, 96
D_HEAD, D_MLP = D_MODEL // N_HEADS, D_MODEL * 8 // 3
STEPS, BATCH, LR, WARMUP = 1500, 8, 5e-3, 100


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("README.md")
    if not file.is_file():
        sys.exit(f"{file}: is not a file")
    text = torch.tensor(list(file.read_bytes()))  # (n_bytes)
    split = len(text) * 9 // 10
    train_text, val_text = text[:split], text[split:]  # the model never trains on the latter
    if len(val_text) <= CONTEXT:
        sys.exit(f"{file}: has {len(text):,} bytes; give a text of at least {10 * CONTEXT + 1:,}")
    torch.manual_seed(1)
    model = GPT()
    optimizer = make_optimizer(model)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(text):,} bytes of text")
    for step in range(1, STEPS + 1):
        loss = train_step(model, optimizer, step, *random_batch(train_text))
        if step % 100 == 0:
            with torch.no_grad():
                inputs, targets = random_batch(val_text)
                val_loss = next_token_loss(model(inputs), targets)
            bits = torch.stack([loss, val_loss]) / math.log(2)  # a blind guess would cost 8
            print(f"step {step}: {bits[0]:.2f} bits per byte, validation {bits[1]:.2f}", flush=True)
    sys.stdout.buffer.write(generate(model, b"\n", 500, temperature=0.8) + b"\n")


def random_batch(text: Tensor) -> tuple[Tensor, Tensor]:
    """Random windows of the text, and for each token in them the token that follows."""
    starts = torch.randint(len(text) - CONTEXT, (BATCH, 1))
    windows = text[starts + torch.arange(CONTEXT + 1)]  # (batch, CONTEXT + 1)
    return windows[:, :-1], windows[:, 1:]


def train_step(model: nn.Module, optimizer: AdamW, step: int, x: Tensor, y: Tensor) -> Tensor:
    """Change every weight a little, so that the targets y become less surprising after x."""
    loss = next_token_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # no single batch may undo the others
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
    optimizer.step()
    return loss.detach()


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log p in nats, where p is the probability of the token that really came."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_optimizer(model: nn.Module) -> AdamW:
    """AdamW. Weight decay shrinks matrices, the embedding included, but not the gains of norms."""
    matrices = {"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": 0.1}
    gains = {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0}
    return AdamW([matrices, gains], lr=LR, betas=(0.9, 0.95))


def learning_rate(step: int) -> float:
    """Linear warmup while AdamW has seen few gradients; linear decay over the last 70%."""
    return LR * min(step / (WARMUP + 1), (STEPS + 1 - step) / (0.7 * STEPS), 1.0)


class GPT(nn.Module):
    """From tokens to logits: at every position, a score for every token that could come next.

    In between is the residual stream: one vector per position, which layers read and add to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(VOCAB, D_MODEL)
        self.blocks = nn.ModuleList(Block() for _ in range(N_LAYERS))
        self.final_norm = nn.RMSNorm(D_MODEL, eps=1e-5)
        init_weights(self)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embedding(tokens)  # (batch, token, d_model)
        for block in self.blocks:
            x = block(x)
        # The same matrix again: a token scores high if its vector aligns with the stream.
        return self.final_norm(x) @ self.token_embedding.weight.T  # (batch, token, vocab)


class Block(nn.Module):
    """One layer: first each position gathers from earlier ones, then each computes on its own."""

    def __init__(self) -> None:
        super().__init__()
        # A norm divides a vector by its root mean square, and multiplies it by learned gains.
        self.attention_norm, self.mlp_norm = (nn.RMSNorm(D_MODEL, eps=1e-5) for _ in range(2))
        self.attention = Attention()
        self.mlp = MLP()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Attention(nn.Module):
    """The only place where positions exchange information. In each head, a position compares its
    query with the keys of all positions up to its own, and averages their values accordingly."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (
            nn.Linear(D_MODEL, D_MODEL, bias=False) for _ in range(4)
        )
        # Normed queries and keys keep the scores small; the gains decide how sharp attention is.
        self.query_norm, self.key_norm = (nn.RMSNorm(D_HEAD, eps=1e-5) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        def heads(x: Tensor) -> Tensor:  # (batch, token, d_model) to (batch, head, token, d_head)
            return x.unflatten(-1, (N_HEADS, D_HEAD)).transpose(1, 2)

        query = rotate(self.query_norm(heads(self.query(x))))
        key = rotate(self.key_norm(heads(self.key(x))))
        value = heads(self.value(x))
        scores = query @ key.mT / math.sqrt(D_HEAD)  # (batch, head, query, key)
        # Hide the future: the targets are the same tokens, one place earlier.
        is_future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(is_future, -math.inf).softmax(dim=-1)
        gathered = weights @ value  # (batch, head, token, d_head)
        return self.output(gathered.transpose(1, 2).flatten(2))  # (batch, token, d_model)


def rotate(x: Tensor) -> Tensor:
    """Turn pairs of components by angles that grow with the position, so that position enters the
    product of a query and a key only through their distance (Su et al. 2021)."""
    frequency = 500 ** (-torch.arange(0, D_HEAD, 2) / D_HEAD)  # slowest: 50 degrees per window
    angle = torch.outer(torch.arange(x.shape[2]), frequency)  # (token, d_head / 2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)


class MLP(nn.Module):
    """SwiGLU: each neuron reads two directions of the stream, one as a gate, and writes a third."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(D_MODEL, D_MLP, bias=False)
        self.up = nn.Linear(D_MODEL, D_MLP, bias=False)
        self.down = nn.Linear(D_MLP, D_MODEL, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


@torch.no_grad()
def init_weights(model: GPT) -> None:
    """Start with small logits, and with attention that passes on a noisy copy of what it reads, so
    that a small model learns to copy words sooner."""
    model.token_embedding.weight.normal_(std=0.5)
    model.final_norm.weight.fill_(0.02 / 0.5)
    scale = 1 / math.sqrt(2 * N_LAYERS)  # so many branches add to the stream
    for linear in [module for module in model.modules() if isinstance(module, nn.Linear)]:
        linear.weight.normal_(std=0.02)
    for module in model.modules():
        if isinstance(module, MLP):
            module.down.weight.mul_(scale)
        if isinstance(module, Attention):
            value = module.value.weight.normal_(std=1 / math.sqrt(D_MODEL))
            module.output.weight.copy_(value.T * scale)  # value.T @ value is roughly the identity


@torch.no_grad()
def generate(model: GPT, prompt: bytes, n_bytes: int, temperature: float) -> bytes:
    """Draw a byte, append it, and repeat. A temperature below 1 favors likelier bytes."""
    tokens = torch.tensor([list(prompt)])  # (1, token)
    for _ in range(n_bytes):
        logits = model(tokens[:, -CONTEXT:])[:, -1]  # (1, vocab): after the last token
        next_token = torch.multinomial((logits / temperature).softmax(dim=-1), 1)
        tokens = torch.cat((tokens, next_token), dim=1)
    return bytes(tokens[0].tolist())


if __name__ == "__main__":
    main()
