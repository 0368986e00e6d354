"""Training: the loop, optimizers, evaluation, checkpoints, run directories, signals, ranks."""
