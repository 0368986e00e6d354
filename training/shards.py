"""Checkpoints of a sharded model, by torch.distributed.checkpoint: every rank writes what it holds.

PyTorch plans who writes what, so that rows that several ranks hold are written once, and raises an
error of one rank on all of them. Its own writers are not used: `FileSystemWriter` stores a pickle,
and `HuggingFaceStorageWriter` copies everything that a rank writes twice. Here the same safetensors
files are written one tensor after the other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint import StorageWriter, save
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from files import fsync, sha256
from training.checkpoint import NewFolder
from training.tensors import Entry, write_tensors
from training.weights import MODEL, OPTIMIZER, shard_name

SEPARATOR = ":"


class Place(NamedTuple):
    """Where a rank writes."""

    folder: Path
    rank: int
    n_ranks: int


class ShardWriter(StorageWriter):
    """Writes two files per rank: its rows of the model, and those of the optimizer's state."""

    def __init__(self, new_folder: NewFolder, stack: ExitStack) -> None:
        self.new_folder, self.stack = new_folder, stack

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the main process: create the folder, which PyTorch sends to all ranks."""
        folder, self.sums = self.stack.enter_context(self.new_folder)
        return [
            replace(plan, storage_data=Place(folder.absolute(), rank, len(plans)))
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        folder, rank, n_ranks = plan.storage_data
        results = []
        for part in (MODEL, OPTIMIZER):
            path = folder / shard_name(part, rank, n_ranks)
            entries, offsets = [], {}
            for item in plan.items:
                kind, name = item.index.fqn.split(SEPARATOR, 1)
                if kind == part and item.tensor_data is not None:
                    tensor = planner.resolve_data(item)
                    assert isinstance(tensor, Tensor)
                    entries.append(Entry.of(name, tensor))
                    offsets[name] = item.tensor_data.chunk.offsets
            write_tensors(path, entries, offsets)
            fsync(path)
            digest = (path.name, sha256(path))
            results.append(WriteResult(MetadataIndex(part), path.stat().st_size, digest))
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the main process, when all ranks have written: complete the checkpoint."""
        self.sums.update(each.storage_data for rank in results for each in rank)
        self.stack.close()

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Nothing: a writer writes one checkpoint."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return False


def save_shards(
    parts: Mapping[str, Mapping[str, Tensor]], new_folder: NewFolder, group: ProcessGroup
) -> None:
    """Write MODEL and OPTIMIZER, by the names of their tensors. All ranks of the group call it; its
    rank 0 alone enters `new_folder`. Raises on every rank what any of them raises."""
    state = {
        part + SEPARATOR + name: each
        for part, tensors in parts.items()
        for name, each in tensors.items()
    }
    try:
        with ExitStack() as stack:
            save(state, storage_writer=ShardWriter(new_folder, stack), process_group=group)
    except CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from None
