"""The loop and what it needs: optimizer, schedule, evaluation, checkpoints, run directories."""
