"""A process that imports what the scripts need, and runs each script in a fork of itself.

A small command spends most of its time importing PyTorch. Here the import happens once for all
commands. Each fork runs a script as `__main__`, with its own current directory, arguments and
standard streams, and exits as any interpreter does.

Reads one request per line from standard input, and answers each with its exit status on one line.
"""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

import gc
import importlib
import json
import os
import runpy
import signal
import sys

PRELOADED = (
    *("convert", "evaluate", "look", "prepare", "sample", "shapes", "train"),
    *("observe.terminal", "rustbpe", "torch.utils.tensorboard"),
    *("observe.attention", "observe.tensorboard"),
)
TIMEOUT = 300  # seconds


def serve() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # otherwise a fork's last collection copies the memory of all these modules
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        if os.fork() == 0:
            # Returning or raising ends the interpreter, which waits for threads, runs exit
            # functions and flushes, as at the end of any script.
            run(**request)
            return
        _, status = os.wait()
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def run(script: str, arguments: list[str], cwd: str, **streams: str) -> None:
    """Run the script as `__main__`, with the files in `streams` as standard streams."""
    signal.alarm(TIMEOUT)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if name == "stdin" else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(streams[name], flags), number)
    sys.stdin = os.fdopen(0, closefd=False)
    os.chdir(cwd)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    serve()
