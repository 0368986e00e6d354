"""What the Attention tab's server reads and keeps at most, whatever a log contains."""

MAX_FOLDERS = 50_000  # folders and event files together
RECORD_BYTES = 64_000_000  # of one event; parsed, many empty parts can take 45 times as much
HEADER_BYTES = 4_000_000  # of JSON; parsed, it can take 25 times as much
MEMORY_BYTES = 150_000_000  # for the steps of all runs, and for two maps that are compared
MAX_COMPARED = 10**9  # pairs of a weight and one of another head, of two maps
MAX_NOTES = 100  # on what is skipped, of one file and of all
