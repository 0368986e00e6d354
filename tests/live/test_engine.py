"""The model of the page against that of PyTorch: the same numbers, however a text was read."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from launch.schema import preset
from model import record_attention
from tests.live.conftest import DRAWN, SHOWN, Call, check, close
from tests.live.drawn import (
    Case,
    blocks,
    build,
    cases,
    ids_for,
    packed,
    switched_off,
    switches,
)

READ = f"""async ({{ packed, ids, cuts = [], other }}) => {{
    const reading = new Reading(await load(packed));
    if (other) {{
        finished(reading.follow(other));
        reading.losses();
    }}
    for (const end of [...cuts, ids.length]) finished(reading.follow(ids.slice(0, end)));
    return ({SHOWN})(reading);
}}"""


@DRAWN
@given(case=cases(), data=st.data())
def test_logits_and_attention(engine: Call, case: Case, data: st.DataObject) -> None:
    """Of a text that was read in parts, and before it another with the same start."""
    model, ids = case
    place = st.integers(0, len(ids))
    cuts = sorted(data.draw(st.lists(place, max_size=3)))
    kept = data.draw(place)
    other = [*ids[:kept], *ids_for(model, len(ids) - kept, data.draw(place))]
    drawn = {"cuts": cuts, "other": other}
    check(engine(READ, {"packed": packed(model), "ids": ids, **drawn}), model, ids)


ABLATED = f"""async ({{ packed, ids, off, cut }}) => {{
    const intact = new Reading(await load(packed));
    finished(intact.read(ids));
    const reading = new Reading(intact.model, off);
    finished(reading.read(ids.slice(0, cut)));
    finished(reading.read(ids.slice(cut)));
    const switched = finished(intact.switched(off, Math.min(...changed(off))));
    const again = switched.copy();
    again.truncate(cut);
    finished(again.read(ids.slice(cut)));
    return [reading, switched, again].map({SHOWN});
}}"""


@DRAWN
@given(case=cases(), data=st.data())
def test_ablation(engine: Call, case: Case, data: st.DataObject) -> None:
    """Read with parts switched off, or switched off later; means are over the text itself."""
    model, ids = case
    off = data.draw(switches(model.config))
    cut = data.draw(st.integers(0, len(ids)))
    readings = engine(ABLATED, {"packed": packed(model, ids), "ids": ids, "off": off, "cut": cut})
    with switched_off(model, ids, off):
        for found in readings:
            check(found, model, ids)


def test_means_over_another_text(engine: Call) -> None:
    model = build(preset("model", "nano_gpt2", d_model=32), 50, seed=7)
    ids, text = ids_for(model, 20, seed=8), ids_for(model, 33, seed=9)
    with record_attention(model, keep="context") as layers:
        model(torch.tensor([text]))
    mean = layers[1][0, 2].mean(0)

    def replace(_module: Any, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        joined = inputs[0].clone()
        joined[..., 16:24] = mean
        return joined

    hook = blocks(model)[1].attention.output.register_forward_pre_hook(replace)
    expected = model(torch.tensor([ids]))[0]
    hook.remove()
    code = f"""async ({{ packed, ids, off }}) => {{
        const reading = new Reading(await load(packed), off);
        finished(reading.read(ids));
        return ({SHOWN})(reading);
    }}"""
    off = {"by": "mean", "heads": [[1, 2]], "mlps": []}
    found = engine(code, {"packed": packed(model, text), "ids": ids, "off": off})
    close(found["logits"], expected)
