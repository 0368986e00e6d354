"""What the Attention tab's server reads and keeps at most, whatever a log contains."""

MOST_FOLDERS = 50_000  # folders and event files together
HEADER_BYTES = 4_000_000  # of JSON; parsed, it can take 25 times as much
