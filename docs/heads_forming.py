"""Draw docs/heads.gif: all attention heads of a run at the steps that it logged, where its probe
repeats a passage. docs/pictures.py calls this."""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.errors import token_label  # noqa: E402
from observe.figures import FONT, colours  # noqa: E402
from store.results import head_names, open_log  # noqa: E402
from store.run import Run  # noqa: E402
from tensorboard_attention.naming import HeadName  # noqa: E402
from tensorboard_attention.patterns import CONTINUES, PATTERNS, Text  # noqa: E402

TOKENS, CELL, GAP = 21, 8, 10  # tokens shown; pixels of a weight and between two maps
LABELS, TITLE, BANNER, SIDE = 72, 36, 40, TOKENS * CELL
INK, PALE, FUTURE, WHITE = (30, 30, 30), (110, 110, 110), (230, 230, 230), (255, 255, 255)
SMALL, MEDIUM, LARGE = (ImageFont.truetype(str(FONT), size) for size in (10, 13, 19))
N_FRAMES = 20
NOTE = "row: a token    column: what it attends to, in the same order    grey: later tokens"


def draw(
    header: bytes, packed: bytes, caption: str, names: list[list[HeadName]] | None
) -> Image.Image:
    """One frame: the maps of all heads at one step, one layer per row."""
    metadata, weights = json.loads(header), np.frombuffer(zlib.decompress(packed), np.uint8)
    tokens, n_heads = metadata["tokens"], metadata["heads"]
    maps = np.zeros((sum(n_heads), len(tokens), len(tokens)))
    maps[:, np.tri(len(tokens), dtype=bool)] = weights.reshape(sum(n_heads), -1) / 255
    text = Text(np.unique(tokens, return_inverse=True)[1], tokens, half=0)
    places = text.cells[PATTERNS.index(CONTINUES)] // len(tokens)  # of queries
    shown = slice(first := max(0, int(places.max(initial=0)) + 2 - TOKENS), first + TOKENS)
    cells = colours(maps[:, shown, shown])
    cells[:, ~np.tri(cells.shape[1], dtype=bool)] = FUTURE
    width = LABELS + max(n_heads) * (SIDE + GAP)
    picture = Image.new("RGB", (width, BANNER + len(n_heads) * (TITLE + SIDE + GAP) + 16), WHITE)
    ink = ImageDraw.Draw(picture)
    ink.text((LABELS, 22), caption, INK, LARGE, anchor="lm")
    ink.text((LABELS, picture.height - 12), NOTE, PALE, SMALL, anchor="lm")
    for layer, count in enumerate(n_heads):
        top = BANNER + layer * (TITLE + SIDE + GAP) + TITLE
        for row, token in enumerate(tokens[shown]):
            label = token_label(token.encode(), 10)
            ink.text((LABELS - 5, top + (row + 0.5) * CELL), label, INK, SMALL, anchor="rm")
        for head in range(count):
            left = LABELS + head * (SIDE + GAP)
            ink.text((left, top - 32), f"L{layer}H{head}", INK, MEDIUM)
            if names:
                ink.text((left, top - 15), names[layer][head].label, PALE, SMALL)
            image = Image.fromarray(cells[sum(n_heads[:layer]) + head])
            picture.paste(image.resize((SIDE, SIDE), Image.Resampling.NEAREST), (left, top))
    return picture


def draw_forming(run: Path) -> None:
    """run: the folder of a run that logged its attention maps."""
    index = open_log(run)
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    losses = {line["step"]: f"{line['train_loss']:.2f}" for line in lines if "train_loss" in line}
    palette = Image.new("P", (1, 1))
    greys = np.linspace(INK, WHITE, 8).round().astype(np.uint8)
    palette.putpalette(np.vstack([colours(np.linspace(0, 1, 24)), greys]).tobytes())
    logged = index.steps()["."]["attention"]
    chosen = np.linspace(0, len(logged) - 1, min(N_FRAMES, len(logged))).round().astype(int)
    frames, steps = [], [logged[place] for place in chosen]
    names = head_names(Run(run), steps)
    for step in steps:
        caption = f"step {step:,}    loss {losses.get(step, '-')}"
        frame = draw(*index.maps(".", "attention", step), caption, names.get(step))
        frames.append(frame.quantize(palette=palette, dither=Image.Dither.NONE))
    times = [900, *[300] * (len(frames) - 2), 4000]
    gif, rest = ROOT / "docs/heads.gif", frames[1:]
    frames[0].save(gif, save_all=True, append_images=rest, duration=times, loop=0)
