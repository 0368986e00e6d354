"""How PyTorch's CPU threads wait for one another. Imported before torch, which reads it once.

GNU OpenMP's threads spin for milliseconds before they sleep. Where another program keeps a core
busy, a thread then spins for one that is not running, and a training step takes ten times as long
and more. This many rounds outlast the pauses within a step, and little else.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
