"""From a command line to the parts of a run."""
