"""Work on matrices, shared among the ranks: each matrix is worked on by one of them, its owner.

Where ranks hold different rows of a matrix (FSDP2), an all-to-all exchange brings the rows to the
owner, and a second one brings those of the result back: no rank holds more than its share of the
matrices. Where ranks hold the same rows (DDP, and the replicas of a mesh of two dimensions), they
divide the matrices among themselves, and gather the results.

Promises: with one rank nothing is sent. The owners depend only on the shapes and on the ranks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

# Underscores: their sizes differ between the arguments of a function.
Rows = Float[Tensor, "_rows _columns"]
Matrices = Float[Tensor, "_matrix _rows _columns"]


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of a DTensor; any other tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def share(
    work: Callable[[Matrices], Matrices],
    held: Sequence[Rows],
    like: Sequence[Tensor],
    dtype: torch.dtype,
) -> list[Rows]:
    """The rows that this rank holds of `work` of every matrix.

    work: maps several wide matrices (rows <= columns) to as many of the same shape. Tall matrices
        are transposed for it.
    held: of every matrix, the rows that this rank holds.
    like: tensors that are distributed as the matrices are: DTensors sharded by rows, or tensors
        that every rank has in full. All ranks call this together, with the same shapes.
    dtype: that of what is sent, of what `work` gets, and of the results.
    """
    if not like:
        return []
    shards, replicas = find_groups(like[0])
    owners = divide([each.shape for each in like], shards.size * replicas.size)
    by_replica: list[list[int]] = [[] for _ in range(replicas.size)]
    for index in sorted(range(len(like)), key=owners.__getitem__):
        by_replica[owners[index] // shards.size].append(index)
    stacks: defaultdict[torch.Size, list[int]] = defaultdict(list)
    for index in by_replica[replicas.rank]:
        stacks[like[index].shape].append(index)
    exchanges = {}
    for shape, stack in stacks.items():
        owned_by = [owners[each] % shards.size for each in stack]
        counts = [owned_by.count(shard) for shard in range(shards.size)]
        exchanges[shape] = Exchange([held[i] for i in stack], shape, counts, shards, dtype)
    # While some matrices are worked on, others are on their way.
    for wide in dict.fromkeys(tuple(sorted(shape)) for shape in stacks):
        group = [each for shape, each in exchanges.items() if tuple(sorted(shape)) == wide]
        full = [each.receive() for each in group]
        wides = [each if each.shape[1:] == wide else each.mT for each in full]
        matrices = wides[0] if len(wides) == 1 else torch.cat(wides)
        done = work(matrices) if len(matrices) else matrices
        for exchange, before, result in zip(
            group, full, done.split([*map(len, full)]), strict=True
        ):
            exchange.reply(result if result.shape == before.shape else result.mT)
    results = {
        index: result
        for shape, stack in stacks.items()
        for index, result in zip(stack, exchanges[shape].results(), strict=True)
    }
    return replicas.all_gather(results, by_replica, held, dtype)


class Group(NamedTuple):
    """A process group, and this rank in it; without one, a rank alone."""

    processes: dist.ProcessGroup | None = None
    rank: int = 0
    size: int = 1

    @classmethod
    def of(cls, processes: dist.ProcessGroup | None) -> Group:
        return cls(processes, dist.get_rank(processes), dist.get_world_size(processes))

    def exchange(self, rows: Rows, send: list[int], receive: list[int]) -> tuple[Rows, Any]:
        """Begin to send these numbers of rows to each rank, and to receive those; returns what is
        received, and what to wait for."""
        if self.size == 1:
            return rows, None
        received = rows.new_empty(sum(receive), rows.shape[1])
        work = dist.all_to_all_single(
            received, rows, receive, send, group=self.processes, async_op=True
        )
        return received, work

    def all_gather(
        self,
        mine: Mapping[int, Rows],
        held_by: Sequence[Sequence[int]],
        like: Sequence[Rows],
        dtype: torch.dtype,
    ) -> list[Rows]:
        """All tensors, of which every rank has some.

        mine: those of this rank, by index; held_by: the indices that each rank has; like: tensors
            of the same shapes; dtype: the one that all have.
        """
        if self.size == 1:
            return [mine[index] for index in range(len(like))]
        sizes = [[like[index].numel() for index in indices] for indices in held_by]
        nothing = like[0].new_empty(0, dtype=dtype)
        own = torch.cat([nothing, *(mine[index].flatten() for index in held_by[self.rank])])
        most = max(map(sum, sizes))  # all ranks must send equally many
        everything = own.new_empty(self.size * most)
        padded = F.pad(own, (0, most - len(own)))
        dist.all_gather_single(everything, padded, group=self.processes)
        found: dict[int, Rows] = {}
        for indices, counts, row in zip(held_by, sizes, everything.split(most), strict=True):
            parts = row[: sum(counts)].split(counts)
            found |= {i: part.view_as(like[i]) for i, part in zip(indices, parts, strict=True)}
        return [found[index] for index in range(len(like))]


def find_groups(tensor: Tensor) -> tuple[Group, Group]:
    """The ranks that hold the other rows of a tensor, and those that hold the same rows."""
    if not hasattr(tensor, "device_mesh"):
        has_ranks = dist.is_available() and dist.is_initialized()
        return Group(), Group.of(dist.group.WORLD) if has_ranks else Group()
    shards = replicas = Group()
    for dimension, placement in enumerate(tensor.placements):  # type: ignore[attr-defined]
        group = Group.of(tensor.device_mesh.get_group(dimension))
        if placement.is_shard(0):
            shards = group
        else:
            assert placement.is_replicate(), placement
            replicas = group
    return shards, replicas


def divide(shapes: Sequence[Sequence[int]], n_owners: int) -> list[int]:
    """The owner of each matrix: the largest first, each to the owner with the least work (Graham
    1969). The work on a matrix is proportional to rows x columns x the smaller of the two."""
    work = [math.prod(shape) * min(shape) for shape in shapes]
    loads, owners = [0] * n_owners, [0] * len(shapes)
    for index in sorted(range(len(shapes)), key=lambda each: -work[each]):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += work[index]
    return owners


class Exchange:
    """Matrices of one shape, on their way to their owners among the ranks of `shards` and back.

    held: the rows that this rank has, of the first owner's matrices first; counts: how many of the
        matrices each rank owns.
    """

    def __init__(
        self,
        held: Sequence[Rows],
        shape: Sequence[int],
        counts: Sequence[int],
        shards: Group,
        dtype: torch.dtype,
    ) -> None:
        self.shards, (n_rows, self.columns) = shards, shape
        # As torch.chunk splits: the last ranks have less, or nothing.
        share = -(-n_rows // shards.size)
        self.heights = [min(share, max(0, n_rows - share * n)) for n in range(shards.size)]
        self.height, self.n_held = self.heights[shards.rank], len(held)
        self.n_owned = counts[shards.rank]
        self.sent = [count * self.height for count in counts]
        self.received = [self.n_owned * height for height in self.heights]
        rows = torch.cat([*held]).to(dtype)
        self.rows, self.work = shards.exchange(rows, self.sent, self.received)

    def receive(self) -> Matrices:
        """The full matrices that this rank owns."""
        self._wait()
        if self.shards.size == 1:
            return self.rows.view(self.n_held, self.height, self.columns)
        parts = self.rows.split(self.received)
        shapes = [(self.n_owned, height, self.columns) for height in self.heights]
        return torch.cat([each.view(s) for each, s in zip(parts, shapes, strict=True)], dim=1)

    def reply(self, results: Matrices) -> None:
        """Begin to send back the rows of their results."""
        if self.shards.size == 1:
            self.rows = results
            return
        rows = torch.cat([each.flatten(0, 1) for each in results.split(self.heights, dim=1)])
        self.rows, self.work = self.shards.exchange(rows, self.received, self.sent)

    def results(self) -> Matrices:
        """The rows of this rank of all results, in the order of `held`."""
        self._wait()
        return self.rows.reshape(self.n_held, self.height, self.columns)

    def _wait(self) -> None:
        if self.work is not None:
            self.work.wait()
