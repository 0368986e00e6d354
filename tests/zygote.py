"""A process that has imported what the scripts import, and runs them in forks of itself.

Most of a small command's time is the import of PyTorch; here it is paid once for all of them. A
fork runs the script as `__main__`, from its first line to its last, with its own folder, arguments
and files for standard input, output and error.

Reads a request a line from standard input, and answers with the exit status, a line each.
"""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

import atexit
import importlib
import json
import os
import runpy
import signal
import sys
import threading

PRELOADED = (
    *("evaluate", "look", "sample", "shapes", "train"),
    *("observe.terminal", "rustbpe", "torch.utils.tensorboard"),
    *("observe.attention", "observe.tensorboard"),
)
TIMEOUT = 300  # seconds


def serve() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(run(request))
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def run(request: dict[str, str]) -> int:
    """In the fork: the script, and what Python does when it ends; returns the exit status."""
    signal.alarm(TIMEOUT)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if name == "stdin" else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(request[name], flags), number)
    sys.stdin = os.fdopen(0, closefd=False)
    os.chdir(request["cwd"])
    sys.argv = [request["script"], *request["arguments"]]
    status = 0
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    vars(threading)["_shutdown"]()  # waits for threads that still write
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return status


if __name__ == "__main__":
    serve()
