"""What watches a run. Each observer is one file and knows nothing of the others."""
