"""How PyTorch's CPU threads wait for each other. Import this before torch, which reads it once.

GNU OpenMP's threads spin for milliseconds before they sleep. If another program keeps a core busy,
they spin for a thread that is not running, and a training step takes ten times as long or more.
This number of rounds is just longer than the pauses within a step.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
