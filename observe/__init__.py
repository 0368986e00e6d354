"""What watches a run. Each observer is one file, knows nothing of the others, and changes nothing."""
