"""What watches a run. Each observer is one file; what two of them share, one of them holds."""
