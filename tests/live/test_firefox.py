"""The page in Firefox, where Debian's is installed: it draws, reads what is typed, and has the
losses of PyTorch. Firefox is asked in its own protocol, Marionette."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from inference.opening import open_run
from tests.conftest import succeed

FIREFOX = shutil.which("firefox-esr")
TEXT = "Once there was a hen named Ida."


class Firefox:
    """A window. Messages are JSON, each with its length before it."""

    def __init__(self, port: int) -> None:
        for _ in range(120):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
                break
            except OSError:
                time.sleep(0.5)
        self.stream = self.socket.makefile("rb")
        self._receive()
        self.count = 0
        self.ask("WebDriver:NewSession")

    def _receive(self) -> Any:
        length = b""
        while not length.endswith(b":"):
            length += self.stream.read(1)
        return json.loads(self.stream.read(int(length[:-1])))

    def ask(self, command: str, **parameters: Any) -> Any:
        self.count += 1
        message = json.dumps([0, self.count, command, parameters])
        self.socket.sendall(f"{len(message)}:{message}".encode())
        _, _, error, answer = self._receive()
        assert error is None, error
        return (answer or {}).get("value")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.ask("WebDriver:ExecuteScript", script=script, args=arguments)

    def wait(self, condition: str) -> None:
        for _ in range(120):
            if self.run(f"return {condition}"):
                return
            time.sleep(0.25)
        raise AssertionError(condition)


@pytest.fixture
def firefox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Firefox]:
    if FIREFOX is None:
        pytest.skip("no Firefox is installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "user.js").write_text(f'user_pref("marionette.port", {port});\n')
    monkeypatch.setenv("HOME", str(tmp_path))  # Firefox refuses that of another user
    options = ["--headless", "--no-remote", "--marionette", "--profile", str(tmp_path)]
    null = subprocess.DEVNULL
    process = subprocess.Popen([FIREFOX, *options], stdout=null, stderr=null)
    try:
        yield Firefox(port)
    finally:
        process.kill()
        process.wait()


def test_the_page_works_in_firefox(firefox: Firefox, tiny_run: Path, tmp_path: Path) -> None:
    succeed("look", f"run={tiny_run}", "html=live.html", "weights=float32", cwd=tmp_path)
    firefox.ask("WebDriver:Navigate", url=(tmp_path / "live.html").as_uri())
    drawn = "document.querySelector('main')?.getAttribute('aria-busy') === 'false'"
    firefox.wait(drawn)
    before = firefox.run("return document.querySelector('main').innerText")
    firefox.run(
        """const field = document.querySelector("textarea");
        field.value = arguments[0];
        field.dispatchEvent(new Event("input", { bubbles: true }));""",
        TEXT,
    )
    said = "document.querySelector('main').innerText"
    firefox.wait(f"{drawn} && {said}.includes('Ida') && {said} !== {json.dumps(before)}")
    run = open_run(tiny_run, "last")
    ids = torch.tensor([run.tokenizer.encode(f"\n\n{TEXT}")])
    with torch.no_grad():
        loss = F.cross_entropy(run.model(ids)[0, :-1], ids[0, 1:]).item()
    found = re.search(r"Loss ([\d.]+) nats a token", firefox.run(f"return {said}"))
    assert found and abs(float(found[1]) - loss) < 1e-3
    assert firefox.run("return document.querySelectorAll('.head canvas').length") > 1
