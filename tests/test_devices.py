"""A GPU gives what a CPU gives, on machines that have one: `pytest -k cuda tests` runs these tests
and those of the parts. Runs that move between devices and are compiled are tested on CPUs too."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from inference.generation import generate, window_start
from model import GPT, ablate, mean_outputs, record_attention
from tests.conftest import (
    ON_GPU,
    ROOT,
    TINY,
    begin,
    command,
    every_device,
    finish,
    metrics,
    small_config,
    succeed,
    torchrun,
)

# On the CPU, tests of the parts have a stricter reference.
on_gpu = pytest.mark.parametrize("device", [ON_GPU])
NEEDS_COMPILER = pytest.mark.skipif(
    not shutil.which("g++") or " " in torch.__file__,
    reason="PyTorch compiles with a C++ compiler, and only where its own path has no space",
)
RUN = (*TINY, "observe.tensorboard=false", "trainer.precision=fp32", "trainer.log_every=1")


def losses(run: Path) -> list[float]:
    return [line["train_loss"] for line in metrics(run) if "lr" in line]


def make_model(device: str = "cpu", **choices: object) -> GPT:
    torch.manual_seed(1)
    return GPT(small_config(2, 4, 32, 24, **choices), 50).to(device)


@on_gpu
@pytest.mark.parametrize("choices", [{}, {"position": "learned", "norm": "layernorm"}])
def test_a_model_computes_what_it_does_on_the_cpu(device: str, choices: dict[str, str]) -> None:
    """Logits, gradients and recorded maps, and logits without some heads."""
    tokens = torch.randint(50, (2, 24), generator=torch.Generator().manual_seed(0))
    found = []
    for place in ("cpu", device):
        model = make_model(place, **choices)
        with record_attention(model) as maps:
            logits = model(tokens.to(place))
        gradients = torch.autograd.grad(logits.square().mean(), list(model.parameters()))
        means = mean_outputs(model, [(tokens, tokens)])
        with ablate(model, [(0, 1), (1, 0), (1, 3)], means):
            ablated = model(tokens.to(place))
        whole = torch.cat([gradient.flatten() for gradient in gradients])
        found.append([each.detach().cpu() for each in (logits, ablated, whole, *maps)])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5 * float(one.abs().max()))


@on_gpu
@pytest.mark.parametrize("how", [{}, {"window": 5, "position": "learned"}])
def test_the_cache_changes_no_token(device: str, how: dict[str, object]) -> None:
    """The window of 24 tokens moves on."""
    model = make_model(device, **how)
    text = torch.randint(50, (2, 5), generator=torch.Generator().manual_seed(0)).to(device)
    written = torch.stack(list(generate(model, text, 60, temperature=0.0)), dim=1)
    for token in written.T:
        with torch.no_grad():
            expected = model(text[:, window_start(text.shape[1], 24) :])[:, -1].argmax(-1)
        assert torch.equal(token, expected)
        text = torch.cat((text, token[:, None]), dim=1)


@pytest.mark.long
@every_device
def test_a_run_moves_between_devices(device: str, tmp_path: Path) -> None:
    """A checkpoint of a GPU is resumed on the CPU, and the other way round."""
    succeed("train", *RUN, "trainer.device=cpu", "run_dir=whole", cwd=tmp_path)
    for run, first, second in (("to-cpu", device, "cpu"), ("from-cpu", "cpu", device)):
        settings = (*RUN, "trainer.max_steps=3", f"trainer.device={first}", f"run_dir={run}")
        succeed("train", *settings, cwd=tmp_path)
        more = (f"resume={run}", "trainer.max_steps=6", f"trainer.device={second}")
        succeed("train", *more, cwd=tmp_path)
        found = losses(tmp_path / run)
        assert found == pytest.approx(losses(tmp_path / "whole"), rel=1e-3), run
        for script, *own in (["sample"], ["evaluate"], ["look", "text=Once there was"]):
            assert succeed(script, f"run={run}", f"device={second}", *own, cwd=tmp_path)


# Everything that several ranks send and wrap, which a run with one rank leaves out.
ONE_RANK = """
import torch
from torch import distributed as dist
from model import GPT
from tests.conftest import small_config
from training.distributed import join_ranks, leaving_ranks

torch.manual_seed(0)
tokens = torch.randint(50, (2, 9), device="{device}")
with leaving_ranks(), join_ranks(torch.device("{device}")) as ranks:
    dist.barrier()
    box = ["settings"]
    dist.broadcast_object_list(box)
    for device in ("cpu", "{device}"):
        values = torch.full((3,), 2.0, device=device)
        dist.all_reduce(values, dist.ReduceOp.MAX)
        assert values.tolist() == [2.0] * 3
    alone, wrapped = [], []
    for found in (alone, wrapped):
        torch.manual_seed(1)
        model = GPT(small_config(2, 4, 32, 24), 50).to("{device}")
        called = model if found is alone else torch.nn.parallel.DistributedDataParallel(model)
        loss = called(tokens[:, :-1], targets=tokens[:, 1:])
        loss.backward()
        found += [loss.detach(), *(each.grad for each in model.parameters())]
    torch.testing.assert_close(wrapped, alone, rtol=1e-4, atol=1e-6)
"""


@on_gpu
def test_one_rank_wrapped_as_several(device: str, tmp_path: Path) -> None:
    """nccl: DDP, and all kinds of messages."""
    script = tmp_path / "script.py"
    script.write_text(ONE_RANK.format(device=device))
    finish(torchrun(1, script, cwd=tmp_path))


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=[pytest.mark.long, NEEDS_COMPILER]), ON_GPU]
)
def test_compiled_steps_have_the_same_losses(device: str, tmp_path: Path) -> None:
    for compiled in ("true", "false"):
        settings = (*RUN, f"trainer.device={device}", f"trainer.compile={compiled}")
        finish(begin(str(ROOT / "train.py"), *settings, f"run_dir={compiled}", cwd=tmp_path))
    assert losses(tmp_path / "true") == pytest.approx(losses(tmp_path / "false"), rel=1e-3)


@pytest.mark.long
def test_a_compiler_that_fails_ends_in_one_line(tmp_path: Path) -> None:
    environment = {"CXX": "/nonexistent", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    arguments = (*RUN, "trainer.device=cpu", "trainer.compile=true", "run_dir=run")
    done = command("train", *arguments, cwd=tmp_path, **environment)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("error: trainer.compile: ")
    assert "install a C++ compiler" in line and not (tmp_path / "run").exists()
