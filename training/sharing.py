"""Work on matrices, shared among the ranks: each matrix is worked on by one of them, its owner.

Where ranks hold different rows of a matrix (FSDP2), an all-to-all exchange brings the rows to the
owner, and a second one brings those of the result back: no rank holds more than its share of the
matrices. Where ranks hold the same rows (DDP, and the replicas of a mesh of two dimensions), they
divide the matrices among themselves, and broadcast the results.

Promises: with one rank nothing is sent. The owners depend only on the shapes and on the ranks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

# Underscores: their sizes differ between the arguments of a function.
Rows = Float[Tensor, "_rows _columns"]
Matrices = Float[Tensor, "_matrix _rows _columns"]


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of a DTensor; any other tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def share(
    work: Callable[[Matrices], Matrices], held: Sequence[Rows], like: Sequence[Tensor]
) -> list[Rows]:
    """The rows that this rank holds of `work` of every matrix.

    work: maps several wide matrices (rows <= columns) to as many of the same shape. Tall matrices
        are transposed for it.
    held: of every matrix, the rows that this rank holds.
    like: tensors that are distributed as the matrices are: DTensors sharded by rows, or tensors
        that every rank has in full. All ranks call this together, with the same shapes.
    """
    if not like:
        return []
    shards, replicas = find_groups(like[0])
    owners = divide([each.shape for each in like], shards.size * replicas.size)
    stacks: defaultdict[torch.Size, list[int]] = defaultdict(list)
    for index, matrix in enumerate(like):
        stacks[matrix.shape].append(index)
    exchanges = {
        shape: Exchange(
            [held[i] for i in stack], shape, [owners[i] for i in stack], shards, replicas
        )
        for shape, stack in stacks.items()
    }
    # While some matrices are worked on, others are on their way.
    for wide in dict.fromkeys(tuple(sorted(shape)) for shape in stacks):
        group = [each for shape, each in exchanges.items() if tuple(sorted(shape)) == wide]
        full = [each.receive() for each in group]
        matrices = torch.cat([each if each.shape[1:] == wide else each.mT for each in full])
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
    return [results[index] for index in range(len(like))]


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
    """Matrices of one shape, on their way to their owners and back.

    owners: of each matrix, the place of its owner in a grid of `replicas.size` rows, each with
        `shards.size` ranks.
    """

    def __init__(
        self,
        held: Sequence[Rows],
        shape: Sequence[int],
        owners: Sequence[int],
        shards: Group,
        replicas: Group,
    ) -> None:
        self.shards, self.replicas, (n_rows, self.columns) = shards, replicas, shape
        # As torch.chunk splits: the last ranks have less, or nothing.
        share = -(-n_rows // shards.size)
        self.heights = [min(share, max(0, n_rows - share * n)) for n in range(shards.size)]
        self.height = self.heights[shards.rank]
        # For every replica, its matrices, sorted by owner.
        order = sorted(range(len(held)), key=owners.__getitem__)
        self.order = [
            [each for each in order if owners[each] // shards.size == replica]
            for replica in range(replicas.size)
        ]
        mine = self.order[replicas.rank]
        place = replicas.rank * shards.size
        counts = [owners.count(place + shard) for shard in range(shards.size)]
        self.n_owned = counts[shards.rank]
        self.sent = [count * self.height for count in counts]
        self.received = [self.n_owned * height for height in self.heights]
        rows = torch.cat([held[0][:0], *(held[each] for each in mine)])
        self.rows, self.work = shards.exchange(rows, self.sent, self.received)

    def receive(self) -> Matrices:
        """The full matrices that this rank owns."""
        self._wait()
        parts = self.rows.split(self.received)
        shapes = [(self.n_owned, height, self.columns) for height in self.heights]
        return torch.cat([each.view(s) for each, s in zip(parts, shapes, strict=True)], dim=1)

    def reply(self, results: Matrices) -> None:
        """Begin to send back the rows of their results."""
        rows = torch.cat([each.flatten(0, 1) for each in results.split(self.heights, dim=1)])
        self.rows, self.work = self.shards.exchange(rows, self.received, self.sent)

    def results(self) -> list[Rows]:
        """The rows of this rank of all results, also those of other replicas."""
        self._wait()
        found: dict[int, Rows] = {}
        waiting = []
        for replica, order in enumerate(self.order):
            rows = self.rows
            if replica != self.replicas.rank:
                rows = rows.new_empty(len(order) * self.height, self.columns)
            if self.replicas.size > 1:
                group = self.replicas.processes
                waiting.append(dist.broadcast(rows, group=group, group_src=replica, async_op=True))
            matrices = rows.view(len(order), self.height, self.columns)
            found |= zip(order, matrices, strict=True)
        for each in waiting:
            each.wait()
        return [found[index] for index in range(len(found))]

    def _wait(self) -> None:
        if self.work is not None:
            self.work.wait()
