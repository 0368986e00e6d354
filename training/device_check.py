"""Whether a device computes right: a small fixed step, compared with results in float64 that are
stored in device_check.safetensors.

What a device gets wrong silently is a single operation: a copy that is not waited for, a mask that
is ignored, an update in place of a tensor that is not contiguous. So the operations of a step come
first, one by one, and then what is made of them. All inputs are multiples of 1/64 between -1 and 1,
which every dtype has exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from common.device import machine, remember, send
from common.errors import UserError
from model.attention import explicit_attention, fused_attention, window_mask
from model.layers import Rotary
from model.loss import cross_entropy, linear_cross_entropy
from training.muon import Muon
from training.optimizer import AdamW
from training.precision import Precision, autocast, name_of

RESULTS = Path(__file__).with_suffix(".safetensors")
VERSION = "1"  # of what is computed
ROWS, WIDTH, CPU = 6, 8, torch.device("cpu")
# The deviation that is allowed, in units of the largest value and of the dtype's precision. CPUs
# reach 2; GPUs have approximations of functions such as exp in float32.
TOLERANCE = {torch.float32: 64.0, torch.bfloat16: 8.0, torch.float16: 8.0}
IDS = torch.tensor([5, 0, 3, 5, 1, 2])
TARGETS = torch.tensor([[4, -100, 0, 2, 2, 3]])


def numbers(*shape: int, seed: int = 1) -> Tensor:
    """Fixed multiples of 1/64 between -1 and 1, in float64."""
    n = torch.arange(math.prod(shape), dtype=torch.float64)
    return ((n * n + 37 * n + 53 * seed) % 127 - 63).div(64).reshape(shape)


def _foreach(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    tensors = [a.clone(), b.clone()]
    torch._foreach_mul_(tensors, 0.5)
    torch._foreach_add_(tensors, [b, c], alpha=0.25)
    torch._foreach_copy_(tensors, [tensors[1].clone(), tensors[0].clone()])
    return torch.stack(tensors)


def _index(a: Tensor, n: int) -> Tensor:
    return (64 * a).long() % n


def _in_place(name: str, tensor: Tensor, *others: Any, **options: Any) -> Tensor:
    """A copy of a tensor, changed by a method; of the same layout."""
    tensor = tensor.clone()
    getattr(tensor, name)(*others, **options)
    return tensor


# Of three tensors of 6 x 8 numbers.
OPERATIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "copy": lambda a, b, c: torch.stack([a.clone(), b.contiguous(), _in_place("copy_", a, c)]),
    "conversion": lambda a, b, c: a.float().to(b.dtype) + b,
    "sum": lambda a, b, c: torch.cat([a.sum(1), b.mean(0), (a * b - c).norm(dim=1)]),
    "lerp": lambda a, b, c: torch.stack([a.lerp(b, 0.25), _in_place("lerp_", a, c, 0.75)]),
    "addcmul": lambda a, b, c: torch.stack(
        [torch.addcmul(a, b, c), _in_place("addcmul_", a, b, c)]
    ),
    "addcdiv": lambda a, b, c: _in_place("addcdiv_", a, b, c + 2, value=0.5),
    "multiplication in place": lambda a, b, c: torch.stack(
        [_in_place("mul_", a, b), _in_place("add_", b, c, alpha=0.25), _in_place("sub_", c, a)]
    ),
    "division": lambda a, b, c: a.div(4) + b / (c + 2),
    "where": lambda a, b, c: a.where(b > 0, c),
    "masked_fill": lambda a, b, c: a.masked_fill(b > c, 0.5),
    "triu": lambda a, b, c: torch.stack([a.triu(1), b.tril(2), _in_place("triu_", c, -1)]),
    "roll": lambda a, b, c: torch.addcmul(a * b, a.roll(WIDTH // 2, dims=-1), c),
    "concatenation": lambda a, b, c: torch.cat([a, torch.stack([b, c]).flatten(0, 1)], dim=0),
    "gather": lambda a, b, c: a.gather(1, _index(b, WIDTH)),
    "scatter_add": lambda a, b, c: _in_place("scatter_add_", a, 1, _index(b, WIDTH), c),
    "index_select": lambda a, b, c: a.index_select(0, _index(b, ROWS)[0]),
    "amax": lambda a, b, c: torch.cat([a.amax(1), c.topk(3).values.flatten()]),
    "cumsum": lambda a, b, c: a.cumsum(1) + (b > 0).cumsum(1),
    "comparison": lambda a, b, c: torch.stack([a > b, b.ne(c), (a / a.relu()).isfinite()]).float(),
    "exp": lambda a, b, c: torch.stack([a.exp(), (b + 2).log(), c.tanh(), (c + 2).rsqrt()]),
    "silu": lambda a, b, c: torch.stack([F.silu(a), F.gelu(b, approximate="tanh"), c.square()]),
    "softmax": lambda a, b, c: torch.stack([(4 * a).softmax(-1), b.log_softmax(-1)]),
    "matrix product": lambda a, b, c: torch.cat([(a @ b.mT).flatten(), (a.mT @ c).flatten()]),
    "baddbmm": lambda a, b, c: torch.baddbmm(a[None], (b @ c.mT)[None], c[None], beta=0.5, alpha=2),
    "foreach": _foreach,
    "cross entropy": lambda a, b, c: cross_entropy(4 * a, send(TARGETS[0], a.device), "sum"),
}


def _embed(weight: Tensor) -> Tensor:
    return F.embedding(send(IDS, weight.device), weight)


def _loss(hidden: Tensor, weight: Tensor) -> Tensor:
    return linear_cross_entropy(hidden, weight, send(TARGETS, hidden.device), "sum")


def _cast(x: Tensor) -> Tensor:
    """As a linear layer under autocast would return it."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def _rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    x = _cast(x)
    return F.rms_norm(x, (WIDTH,), gain.to(x.dtype), 1e-5)


def _rotary(x: Tensor) -> Tensor:
    return Rotary(ROWS + 2, WIDTH, 500.0).to(x.device)(_cast(x), 2)


def _layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (WIDTH,), gain, bias, 1e-5)


def _masked(attend: Callable[..., Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query = query[:, :, 2:]  # the newest tokens; the others are cached
        mask = window_mask(query.shape[2], key.shape[2], 4, query.device)
        return attend(query, key, value, mask)

    return masked


QUERY, KEYS = (1, 4, ROWS, WIDTH), (1, 2, ROWS, WIDTH)
ATTENTION = (QUERY, KEYS, KEYS)
# Functions of tensors of these shapes; their gradients are compared, too.
PARTS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "embedding": (_embed, ((ROWS, WIDTH),)),
    "linear layer": (F.linear, ((2, ROWS, WIDTH), (4, WIDTH), (4,))),
    "RMSNorm": (_rms_norm, ((2, ROWS, WIDTH), (WIDTH,))),
    "LayerNorm": (_layer_norm, ((2, ROWS, WIDTH), (WIDTH,), (WIDTH,))),
    "rotary positions": (_rotary, (QUERY,)),
    "causal attention": (fused_attention, ATTENTION),
    "wide attention": (fused_attention, ((1, 2, ROWS, 64),) * 3),
    "attention with a mask": (_masked(fused_attention), ATTENTION),
    "attention in steps": (_masked(lambda *a: explicit_attention(*a).context), ATTENTION),
    "loss": (_loss, ((1, ROWS, WIDTH), (5, WIDTH))),
}


def _step(make: Callable[[list[nn.Parameter]], AdamW | Muon], device: torch.device) -> list[Tensor]:
    """How two parameters move in two steps of an optimizer with clipped gradients."""
    start = [send(numbers(ROWS, WIDTH).float(), device), send(numbers(WIDTH, ROWS).float(), device)]
    parameters = [nn.Parameter(tensor.clone()) for tensor in start]
    rule = make(parameters)
    for seed in (2, 3):
        for parameter in parameters:
            parameter.grad = send(numbers(*parameter.shape, seed=seed).float(), device)
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        rule.step(0.5, norm.isfinite())
    moved = [after.detach() - before for after, before in zip(parameters, start, strict=True)]
    return [*moved, norm]


def results(
    device: torch.device, precision: Precision
) -> Iterator[tuple[str, torch.dtype, Callable[[], list[Tensor]]]]:
    """What is compared, in order: its name, the dtype of the products, and what computes it."""
    for dtype in dict.fromkeys((torch.float32, precision.fast, precision.dtype)):
        for name, operation in OPERATIONS.items():
            for is_strided in (False, True):
                yield name, dtype, partial(_run, operation, device, dtype, is_strided)
        for name, (function, shapes) in PARTS.items():
            for is_strided in (False, True):
                run = partial(_differentiate, function, shapes, device, dtype, is_strided)
                yield name, dtype, run
    yield "AdamW", torch.float32, lambda: _step(lambda p: AdamW(p, 0.1, 0.5, (0.9, 0.99)), device)
    dtype = precision.fast if precision.fast == torch.bfloat16 else torch.float32
    yield "Muon", dtype, lambda: _step(lambda p: Muon(p, 0.1, 0.5, 0.9, dtype), device)


def _run(
    operation: Callable[[Tensor, Tensor, Tensor], Tensor],
    device: torch.device,
    dtype: torch.dtype,
    is_strided: bool,
) -> list[Tensor]:
    tensors = [send(numbers(ROWS, WIDTH, seed=seed).to(dtype), device) for seed in (1, 2, 3)]
    if is_strided:
        tensors = [_strided(tensor) for tensor in tensors]
    return [operation(*tensors)]


def _strided(tensor: Tensor) -> Tensor:
    """The same values in a layout that is not contiguous: that in which a model has its heads."""
    if tensor.ndim < 2:
        return tensor
    axes = (-2, -1) if tensor.ndim == 2 else (-3, -2)
    return tensor.transpose(*axes).contiguous().transpose(*axes)


def _differentiate(
    function: Callable[..., Tensor],
    shapes: Sequence[tuple[int, ...]],
    device: torch.device,
    dtype: torch.dtype,
    is_strided: bool,
) -> list[Tensor]:
    """The value of a function and its gradients."""
    tensors = [
        send(numbers(*shape, seed=seed).float(), device) for seed, shape in enumerate(shapes)
    ]
    leaves = [_strided(tensor) if is_strided else tensor for tensor in tensors]
    for leaf in leaves:
        leaf.requires_grad_()
    with autocast(device, dtype):
        value = function(*leaves)
    upstream = send(numbers(*value.shape, seed=9).to(value.dtype), device)
    # As grad_outputs, `upstream` would import a library for half a second.
    return [value.detach(), *torch.autograd.grad((value * upstream).sum(), leaves)]


def find_fault(device: torch.device, precision: Precision) -> str | None:
    """The first of `results` that deviates from what is stored by more than its dtype explains, in
    words; None if there is none."""
    stored, before = load_file(RESULTS), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # whatever the user allows: no TF32
    try:
        for name, dtype, compute in results(device, precision):
            try:
                found = compute()
            except (NotImplementedError, RuntimeError, TypeError):
                continue  # not silent: training says as much, if it needs this
            deviation = max(
                _deviation(tensor, stored[f"{name} {i}"]) for i, tensor in enumerate(found)
            )
            if not deviation <= TOLERANCE[dtype] * torch.finfo(dtype).eps:
                return f"{name} in {name_of(dtype)} (off by {deviation:.1g} of the largest value)"
    finally:
        torch.set_float32_matmul_precision(before)
    return None


def _deviation(found: Tensor, expected: Tensor) -> float:
    """The largest, in units of the largest value; infinity for NaN."""
    difference = (found.cpu().double().flatten() - expected).abs().max() / expected.abs().max()
    return float(difference.nan_to_num(nan=math.inf))


def check_device(device: torch.device, precision: Precision, cache_dir: str | Path) -> None:
    """Raise UserError, naming the operation, if the device does not compute a small step right.
    Once for a device, a version of torch and a precision: later runs find it in `cache_dir`."""

    def check() -> float:
        fault = find_fault(device, precision)
        if fault is None:
            return 0.0
        other = "trainer.device=cpu" if device.type != "cpu" else "another version of torch"
        raise UserError(
            f"trainer.device: {device.type} computes {fault} wrongly; train with {other}, and "
            f"report this line to PyTorch: {', '.join(machine(device)[:4])}"
        )

    names = (name_of(precision.dtype), name_of(precision.fast))
    remember(Path(cache_dir), device, ["device check", VERSION, *names], check)
