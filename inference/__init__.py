"""What a trained model is used for: opening a run, and writing with it."""
