"""What the Attention tab's server reads and keeps at most, whatever a log contains."""

MOST_FOLDERS = 50_000  # folders and event files together
