"""The folder of a run: its files, lock, checkpoints and weights, and the results of runs."""
