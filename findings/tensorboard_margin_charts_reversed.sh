#!/usr/bin/env bash
# One would guess: the Custom Scalars tab of TensorBoard shows the charts of a category in the order of its layout.
# Instead, that holds for charts of several tags ("multiline"). Charts of a value with its margin come in the reverse order,
# so the one that was meant to be seen first is the last one of the page.
# It matters where the mean of many seeds is logged with its band: the loss ended below the fold, behind what explains it.
# The product writes its charts with margins in reverse (observe/curves.py). The script needs a system Chromium.
set -euo pipefail
chromium=$(command -v chromium || command -v chromium-browser)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tensorboard==2.21.0 playwright==1.62.0
cd "$folder"
cat > layouts.py <<'END'
import json
import sys
import time
from urllib.request import urlopen

from playwright.sync_api import sync_playwright
from tensorboard import program, version
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.custom_scalar import layout_pb2, metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

NAMES = ["first", "second", "third"]


def chart(kind, name):
    if kind == "multiline":
        return layout_pb2.Chart(title=name, multiline=layout_pb2.MultilineChartContent(tag=[name]))
    series = layout_pb2.MarginChartContent.Series(value=name, lower=name, upper=name)
    return layout_pb2.Chart(title=name, margin=layout_pb2.MarginChartContent(series=[series]))


def shown(browser, kind):
    """The titles of the charts, from the top left to the bottom right."""
    charts = [chart(kind, name) for name in NAMES]
    layout = layout_pb2.Layout(category=[layout_pb2.Category(title="all", chart=charts)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[layout.SerializeToString()])
    about = metadata.create_summary_metadata()
    values = [Summary.Value(tag=metadata.CONFIG_SUMMARY_TAG, tensor=tensor, metadata=about)]
    values += [Summary.Value(tag=name, simple_value=1.0) for name in NAMES]
    writer = EventFileWriter(f"{kind}/run")
    writer.add_event(Event(step=0, summary=Summary(value=values)))
    writer.close()
    server = program.TensorBoard()
    server.configure(logdir=kind, port=0)
    address = server.launch()
    while not json.load(urlopen(f"{address}data/runs")):
        time.sleep(1)
    page = browser.new_page(viewport={"width": 1400, "height": 1200})
    page.goto(f"{address}#custom_scalars")
    titles = {name: page.get_by_text(name, exact=True).first for name in NAMES}
    for title in titles.values():
        title.wait_for()
    page.wait_for_timeout(1000)
    places = {name: title.bounding_box() for name, title in titles.items()}
    return sorted(NAMES, key=lambda name: (round(places[name]["y"]), round(places[name]["x"])))


print("tensorboard", version.VERSION)
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=sys.argv[1], args=["--no-sandbox"])
    seen = {kind: shown(browser, kind) for kind in ("multiline", "margin")}
print("a category with the charts first, second, third")
for kind, names in seen.items():
    print(f"  {kind}: seen {', '.join(names)}")
sys.exit(seen != {"multiline": NAMES, "margin": NAMES[::-1]})
END
"$folder/venv/bin/python" layouts.py "$chromium" 2> log || { cat log; exit 1; }
