"""Training: the loop, optimizers, evaluation, checkpoints, signals, ranks."""
