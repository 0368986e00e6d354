"""The one exception that means: the user can put this right.

Everything else that is raised is a fault of the program and keeps its traceback.
"""


class UserError(Exception):
    """A mistake in what the user gave: a setting, a file, a run.

    The message is one line that names the setting or file, what is wrong with it and what to do.
    Scripts print it on standard error and exit with status 2.
    """


def check_range(name: str, value: float, least: float, most: float) -> None:
    """Raise ValueError unless least <= value <= most."""
    if not least <= value <= most:
        raise ValueError(f"{name}: {value} is out of range; give {least} to {most}")
