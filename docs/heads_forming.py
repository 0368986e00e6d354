"""Draw docs/heads.gif: all attention heads of a run, forming while it trains, on a tale's song.

SONG="Oh, hens, flies hens, storks flies hens, worms storks flies hens!"
python train.py observe.attention.every=25 trainer.log_every=25 run_dir=RUN \\
    observe.attention.probe="Once Ida sang: \\"$SONG\\""
python docs/heads_forming.py RUN
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from observe.figures import FONT, colours, token_label  # noqa: E402
from tensorboard_attention.index import Index  # noqa: E402

TOKENS, CELL, GAP = 21, 9, 10  # tokens shown; pixels of a weight and between two maps
LABELS, TITLE, BANNER, SIDE = 72, 36, 40, TOKENS * CELL
INK, PALE, FUTURE, WHITE = (30, 30, 30), (110, 110, 110), (230, 230, 230), (255, 255, 255)
SMALL, MEDIUM, LARGE = (ImageFont.truetype(str(FONT), size) for size in (10, 13, 19))
# The scores that are not shares of attention, and a share that all heads have.
OTHER = ("importance", "importance, error", "entropy", "mean distance", "nearby")
NOTE = "row: a token    column: what it attends to, in the same order    grey: later tokens"


def draw(header: bytes, packed: bytes, caption: str) -> Image.Image:
    """One frame: the maps of all heads at one step, one layer per row."""
    metadata, weights = json.loads(header), np.frombuffer(zlib.decompress(packed), np.uint8)
    n, n_heads, scores = len(metadata["tokens"]), metadata["heads"], metadata["scores"]
    maps = np.zeros((sum(n_heads), n, n))
    maps[:, np.tri(n, dtype=bool)] = weights.reshape(sum(n_heads), -1) / 255
    cells = colours(maps[:, :TOKENS, :TOKENS])
    cells[:, ~np.tri(TOKENS, dtype=bool)] = FUTURE
    labels = [token_label(token.encode(), 10) for token in metadata["tokens"][:TOKENS]]
    width = LABELS + max(n_heads) * (SIDE + GAP)
    picture = Image.new("RGB", (width, BANNER + len(n_heads) * (TITLE + SIDE + GAP) + 16), WHITE)
    ink = ImageDraw.Draw(picture)
    ink.text((LABELS, 22), caption, INK, LARGE, anchor="lm")
    ink.text((LABELS, picture.height - 12), NOTE, PALE, SMALL, anchor="lm")
    for layer, count in enumerate(n_heads):
        top = BANNER + layer * (TITLE + SIDE + GAP) + TITLE
        for row, label in enumerate(labels):
            ink.text((LABELS - 5, top + (row + 0.5) * CELL), label, INK, SMALL, anchor="rm")
        for head in range(count):
            left = LABELS + head * (SIDE + GAP)
            shares = {
                name: score[layer][head] for name, score in scores.items() if name not in OTHER
            }
            ink.text((left, top - 32), f"layer {layer}, head {head}", INK, MEDIUM)
            image = Image.fromarray(cells[sum(n_heads[:layer]) + head])
            picture.paste(image.resize((SIDE, SIDE), Image.Resampling.NEAREST), (left, top))
            share, name = max((share, name) for name, share in shares.items())
            if share >= 0.2:
                ink.text((left, top - 15), f"{name} {share:.0%}", PALE, SMALL)
    return picture


def main(run: Path) -> None:
    index = Index(str(run))
    while not index.refresh():
        pass
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    losses = {line["step"]: f"{line['train_loss']:.2f}" for line in lines if "train_loss" in line}
    palette = Image.new("P", (1, 1))
    greys = np.linspace(INK, WHITE, 16).round().astype(np.uint8)
    palette.putpalette(np.vstack([colours(np.linspace(0, 1, 48)), greys]).tobytes())
    frames = []
    for step in index.steps()["."]["attention"]:
        caption = f"step {step:,}    loss {losses.get(step, '-')}"
        frame = draw(*index.maps(".", "attention", step), caption)
        frames.append(frame.quantize(palette=palette, dither=Image.Dither.NONE))
    times = [900, *[160] * (len(frames) - 2), 4000]
    target = ROOT / "docs/heads.gif"
    frames[0].save(target, save_all=True, append_images=frames[1:], duration=times, loop=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw docs/heads.gif from a run.")
    parser.add_argument("run", type=Path, help="folder of a run that logged its attention maps")
    main(parser.parse_args().run)
