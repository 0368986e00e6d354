"""The tab links to the live page in a run's folder, and serves no other file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright import sync_api

from tensorboard_attention.tests.conftest import HOSTILE, Tab, log, served

# Tries all that a page could do to the site it is served from.
PAGE = """<!doctype html><title>live</title><body><script>
const tried = {};
const attempt = async (name, act) => {
  try { tried[name] = await act() } catch (error) { tried[name] = "refused" }
};
const source = new Blob(["postMessage(6 * 7)"], { type: "text/javascript" });
Promise.all([
  attempt("worker", () => new Promise((done, fail) => {
    const worker = new Worker(URL.createObjectURL(source));
    worker.onmessage = ({ data }) => done(data);
    worker.onerror = fail;
  })),
  attempt("fetch", () => fetch("runs").then(() => "done")),
  attempt("log", () => fetch("/data/logdir").then(() => "done")),
  attempt("image", () => new Promise((done, fail) => {
    const image = new Image();
    image.onload = () => done("done");
    image.onerror = fail;
    image.src = "/icon_bundle.svg";
  })),
  attempt("opener", () => opener.document.title),
  attempt("cookie", () => document.cookie),
  attempt("address", () => { history.replaceState(null, "", "#a=b"); return location.hash }),
]).then(() => { document.body.dataset.tried = JSON.stringify(tried) });
</script>"""


def test_only_the_page_of_a_known_run_is_served(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for name in ("one", "two", 'odd &run="<b>" #1%'):
        log(logs / name, 0)
    (logs / "none").mkdir()
    for name in ("one", 'odd &run="<b>" #1%', "none", ".."):
        (logs / name / "live.html").write_text(f"page of {name}")
    get = served(logs)
    assert json.loads(get("/runs")[1])["live"] == ['odd &run="<b>" #1%', "one"]
    assert get("/live", run="one") == (200, b"page of one")
    assert get("/live", run='odd &run="<b>" #1%')[0] == 200
    wrong = ["", ".", "..", "none", "two", "one/", "./one", "one/live.html", "../logs/one", "one\0"]
    for run in (*wrong, str(logs / "one"), HOSTILE):
        assert get("/live", run=run)[0] == 404, run
    assert get("/live")[0] == 404
    (logs / "one/live.html").unlink()
    assert get("/live", run="one")[0] == 404
    assert json.loads(get("/runs")[1])["live"] == ['odd &run="<b>" #1%']


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_regular_file_is_not_served(tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret.html"
    secret.write_text("secret")
    log(tmp_path / "logs/run", 0)
    path = tmp_path / "logs/run/live.html"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(secret)
    get = served(tmp_path / "logs")
    assert json.loads(get("/runs")[1])["live"] == []
    assert get("/live", run="run")[0] == 404


@pytest.mark.long
def test_the_link_opens_a_page_that_can_reach_nothing(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    log(logs / "touched", 0)
    tab = open_tab(run="touched")
    assert not tab["a:has-text('Live page')"].is_visible()
    (logs / "touched/live.html").write_text(PAGE)
    tab.page.clock.fast_forward(11_000)  # it was written while the tab was open
    link = tab["a:has-text('Live page')"]
    link.wait_for()
    with tab.page.expect_popup() as opened:
        link.click()
    page: sync_api.Page = opened.value
    page.locator("body[data-tried]").wait_for(state="attached")
    tried = json.loads(page.locator("body").get_attribute("data-tried") or "")
    reached = {name for name, found in tried.items() if found != "refused"}
    assert reached == {"worker", "address"} and tried["worker"] == 42, tried
    assert page.title() == "live"
    page.close()
