"""What every part may use: mistakes of the user, files, the start of a process."""
