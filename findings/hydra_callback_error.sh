#!/usr/bin/env bash
# One would guess: an exception in a callback of Hydra, such as one that checks the settings before a run, ends the program.
# Instead, it becomes a warning, the run goes on, and the exit status is 0; the same exception in the program itself gives 1.
# It matters because on_run_start and on_multirun_start come before Hydra makes the folder of a run or a sweep: a check of the
# settings seems to belong there, and has no effect but a line among others.
# The product checks before it calls Hydra (launch/quoting.py), and its own callback ends the process itself (launch/sweep.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check hydra-core==1.3.8
cd "$folder"
cat > checks.py <<'END'
from hydra.experimental.callback import Callback


class Check(Callback):
    def on_run_start(self, config, **_):
        raise ValueError("n_heads does not divide d_model")
END
cat > train.py <<'END'
import hydra


@hydra.main(version_base=None)
def main(config):
    print("  the training starts")
    if config.get("fails"):
        raise ValueError("n_heads does not divide d_model")


main()
END
"$folder/venv/bin/python" -c 'import hydra; print("hydra-core", hydra.__version__)'
status=0
echo "exception in on_run_start: expected status 1 and no training"
PYTHONPATH=. "$folder/venv/bin/python" train.py +hydra.callbacks.check._target_=checks.Check 2>log || status=$?
echo "  seen status $status and: $(grep -o "Callback.*" log)"
other=0
echo "exception in the program"
"$folder/venv/bin/python" train.py +fails=true 2>>log || other=$?
echo "  seen status $other"
[ "$status $other" = "0 1" ]
