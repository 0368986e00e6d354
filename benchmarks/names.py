"""How reliable the names of heads are.

    python benchmarks/names.py runs/a runs/b

For each checkpoint of each run: how many heads have another name (percentages aside) when they are
measured on one half of the validation split and on the other, 6,700 tokens each, and when they are
measured on 2,000 tokens, as at every logged step, and on 32,768, as by look.py evidence=true. From
the log: how often a head changes its name between two logged steps from step 300 on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise

import torch

from data.documents import N_TOKENS
from data.encoding import Dataset
from inference.opening import OpenRun, each_checkpoint, open_run
from observe.heads import HeadNames, documents_of, spell
from store.results import head_names, open_log
from tensorboard_attention.naming import HeadName, kind_of

HALF, MANY = 6_700, 32_768
FROM = 300  # steps


def main(paths: list[str]) -> None:
    found = [result for path in paths for result in measure(path)]
    total = sum(heads for heads, *_ in found)
    for place, what in ((1, "between halves"), (2, f"between {N_TOKENS:,} and {MANY:,} tokens")):
        differ = sum(result[place] for result in found)
        print(f"{what}: {differ} of {total} heads differ ({100 * differ / total:.1f}%)")


def measure(path: str) -> Iterator[tuple[int, int, int]]:
    """For each checkpoint, the number of heads and of those that differ in each way."""
    opened = open_run(path, "last", torch.device("cpu"))
    _, dataset = opened.text()
    for checkpoint in each_checkpoint(opened):
        one, other = (named(checkpoint, half, HALF) for half in halves(dataset))
        few, many = (named(checkpoint, dataset, n_tokens) for n_tokens in (N_TOKENS, MANY))
        differ = different(one, other), different(few, many)
        said = ", ".join(name.label for name in many)
        print(f"{path}, step {checkpoint.step}: {said}; differ: {differ}")
        yield len(many), *differ
    steps = [step for step in open_log(opened.run.path).steps()["."]["attention"] if step >= FROM]
    names = sorted(head_names(opened.run, steps).items())
    logged = [[*chain.from_iterable(layers)] for _, layers in names]
    changes = [
        sum(kind_of(a.label) != kind_of(b.label) for a, b in pairwise(head))
        for head in zip(*logged, strict=True)
    ]
    print(f"{path}: changes of each head from step {FROM} on: {changes}")


def halves(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Datasets whose validation splits are the first and the second half of that of another."""
    starts, middle = dataset.val_documents, len(dataset.val) // 2
    if starts is None or len(starts) < 2:
        parts = dataset.val[:middle], dataset.val[middle:]
        return replace(dataset, val=parts[0]), replace(dataset, val=parts[1])
    at = len(starts) // 2
    middle = int(starts[at])
    one = replace(dataset, val=dataset.val[:middle], val_documents=starts[:at])
    return one, replace(dataset, val=dataset.val[middle:], val_documents=starts[at:] - middle)


def named(opened: OpenRun, dataset: Dataset, n_tokens: int) -> list[HeadName]:
    documents = documents_of(opened.model, dataset, n_tokens)
    spelled = spell(opened.tokenizer, opened.model.vocab_size)
    names = HeadNames(opened.model, spelled, documents).measure([]).names
    return [*chain.from_iterable(names)]


def different(some: list[HeadName], others: list[HeadName]) -> int:
    return sum(kind_of(a.label) != kind_of(b.label) for a, b in zip(some, others, strict=True))


if __name__ == "__main__":
    main(sys.argv[1:])
