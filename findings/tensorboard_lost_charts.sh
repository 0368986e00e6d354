#!/usr/bin/env bash
# One would guess: where two runs have a category of the same name, TensorBoard's Custom Scalars tab shows the charts of both.
# Instead, that holds only for categories of the first run by name. Of any other category, the charts of the first run that
# has it are shown, and those that later runs add are left out without a word.
# It matters where folders of different kinds are in one log, such as single runs and curves over many seeds: which charts
# there are depends on the names of the other folders.
# The product gives all curves over seeds the same charts (observe/curves.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tensorboard==2.21.0
cd "$folder"
cat > layouts.py <<'END'
import json
import sys
import time
from urllib.request import urlopen

from tensorboard import program, version
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.custom_scalar import layout_pb2, metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def write(run, category, chart):
    multiline = layout_pb2.MultilineChartContent(tag=["loss"])
    charts = [layout_pb2.Chart(title=chart, multiline=multiline)]
    layout = layout_pb2.Layout(category=[layout_pb2.Category(title=category, chart=charts)])
    value = Summary.Value(
        tag=metadata.CONFIG_SUMMARY_TAG,
        tensor=TensorProto(dtype="DT_STRING", string_val=[layout.SerializeToString()]),
        metadata=metadata.create_summary_metadata(),
    )
    writer = EventFileWriter(run)
    writer.add_event(Event(step=0, summary=Summary(value=[value])))
    writer.close()


def shown(logs, n_runs):
    server = program.TensorBoard()
    server.configure(logdir=logs, port=0)
    address = server.launch()
    for _ in range(60):
        time.sleep(1)
        if len(json.load(urlopen(f"{address}data/runs"))) == n_runs:
            break
    layout = json.load(urlopen(f"{address}data/plugin/custom_scalars/layout"))
    return {each["title"]: [chart["title"] for chart in each["chart"]] for each in layout["category"]}


write("two/b", "seeds", "one")
write("two/c", "seeds", "two")
write("three/a", "single run", "zero")
write("three/b", "seeds", "one")
write("three/c", "seeds", "two")
print("tensorboard", version.VERSION)
two, three = shown("two", 2), shown("three", 3)
print("two runs, each with a chart in a category of the same name")
print("  seen", two)
print("the same two after a run without this category: expected these charts and its own")
print("  seen", three)
sys.exit(two != {"seeds": ["one", "two"]} or three != {"single run": ["zero"], "seeds": ["one"]})
END
"$folder/venv/bin/python" layouts.py 2> log || { cat log; exit 1; }
