"""What must happen before torch is imported, which reads or needs it once. Import this first.

Torch makes half a million objects while it is imported, and Python searches them for garbage again
and again, which takes a tenth of a second, unless it waits for more new ones than usual. Afterwards
`launch.cli.run_script` resets this number.

How PyTorch's CPU threads wait for each other: GNU OpenMP's threads spin for milliseconds before
they sleep. If another program keeps a core busy, they spin for a thread that is not running, and a
training step takes ten times as long or more. This number of rounds is just longer than the pauses
within a step.

A stream that is closed (`2>&-`) has no object in Python, and its number would be that of the next
file that is opened: it leads nowhere instead.

Ctrl-C ends a script at once, as SIGTERM does, also during its imports; notebooks and programs that
import the project keep Python's exception.

Without a working folder, torch's libraries end the process with messages of their own.
"""

import gc
import os
import signal
import sys
from pathlib import Path

GC_THRESHOLD = gc.get_threshold()
gc.set_threshold(100_000)

for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
    if getattr(sys, name) is None:
        setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 (the lowest free number)

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

main = getattr(sys.modules["__main__"], "__file__", None) or ""
root = Path(os.path.realpath(__file__)).parent.parent
is_script = bool(main) and Path(os.path.realpath(main)).parent == root
if is_script and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    os.getcwd()  # noqa: PTH109 (pathlib is not needed here)
except FileNotFoundError:
    print("error: the working folder does not exist any more; change to another", file=sys.stderr)
    sys.exit(2)
