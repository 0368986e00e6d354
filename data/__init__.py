"""From text to batches: corpora, tokenizers, token files, batches."""
