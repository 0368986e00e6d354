"""The exception for a user's mistake, the checks that raise one, messages about files that the
system refuses, and text that is safe to print.

Any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
import math
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

# Characters that control a terminal or reorder the text on it: control characters other than line
# feeds and tabs, and overrides of the writing direction. And what no encoding has: the bytes in
# names of files that are not UTF-8.
CONTROLS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥"}
ADVICE = {
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): "free some disk space, or raise the limit",
    (
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
    ): "change its permissions, or give another file or folder",
    (errno.EMFILE, errno.ENFILE): "raise the limit on open files (ulimit -n)",
}


class UserError(Exception):
    """A mistake in what the user gave: a setting, a file, a run.

    The message is one line that names the setting or file, what is wrong with it and what to do.
    Scripts print it on standard error and exit with status 2.
    """


@contextmanager
def as_mistake(before: str = "", after: str = "") -> Iterator[None]:
    """Raise a ValueError of the block as UserError, with words before and after its own."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{before}{error}{after}") from error


def refusal(error: OSError) -> str:
    """What a file system refuses, in which file, and what to do."""
    name = error.filename
    file = os.fsdecode(name) if isinstance(name, str | bytes) else "standard output or a file"
    return f"{file}: cannot be read or written ({error.strerror or error}); {advice(error)}"


def reason(error: BaseException) -> str:
    """What a library says, in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def advice(error: OSError) -> str:
    """What to do about what a file system refuses."""
    known = (text for numbers, text in ADVICE.items() if error.errno in numbers)
    return next(known, "check it, or give another file or folder")


def as_argument(path: Path | str) -> str:
    """A path as the value of a setting such as `resume`, quoted for a shell. Folders with the names
    of its words are `./auto` and `./null`."""
    text = str(path)
    return shlex.quote(f"./{text}" if text in ("auto", "null") else text)


def printable(text: str) -> str:
    """The text with `CONTROLS` escaped: for what a model has written, and for names, of which
    somebody else's run can have any."""
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def print_note(line: str) -> None:
    """Print a note or warning on standard error, as `printable` text in one line."""
    print(printable(line).replace("\n", "\\n"), file=sys.stderr)


def token_label(token: bytes, longest: int = 14) -> str:
    """A token in at most `longest` characters, with white space, control characters and bytes that
    are not UTF-8 made visible."""
    text = token.decode(errors="backslashreplace")
    escapes = {letter: ascii(letter)[1:-1] for letter in text if not letter.isprintable()}
    shown = "".join((escapes | VISIBLE).get(letter, letter) for letter in text)
    return (shown if len(shown) <= longest else shown[: longest - 1] + "…") or "∅"


def installing(extra: str) -> str:
    """The command that installs what an extra of the project needs, as in the README."""
    return f'pip install -c constraints.txt -e ".[{extra}]"'


def pluralize(number: int, noun: str) -> str:
    """A number of things: "1 file", "2,000 files"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def check_range(
    name: str,
    value: float,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: float = -math.inf,
    below: float = math.inf,
) -> None:
    """Raise ValueError unless least <= value <= most and above < value < below.

    Infinities and NaN are never in range.
    """
    if not (least <= value <= most and above < value < below):
        bounds = {"at least": least, "more than": above, "at most": most, "less than": below}
        wanted = " and ".join(
            f"{word} {bound}" for word, bound in bounds.items() if not math.isinf(bound)
        )
        raise ValueError(f"{name}: {value} is out of range; give {wanted or 'a finite number'}")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    if value not in (known := tuple(choices)):
        similar = get_close_matches(str(value), known, 1)
        meant = f"; did you mean {similar[0]}?" if similar else ""
        raise ValueError(f"{name}: {value!r} is unknown; choose one of {', '.join(known)}{meant}")


def check_path(setting: str, path: str) -> None:
    """Raise UserError, naming `setting`, as `check_folder` raises ValueError, and for a `..`
    after a folder that does not exist."""
    with as_mistake():
        check_folder(setting, path)
    whole = Path(path).expanduser()
    for part in (whole, *whole.parents):
        if part.name == ".." and not os.path.lexists(part):
            raise UserError(
                f"{setting}: {path}: {part.parent} is not a folder; give a path without it"
            )


def check_folder(name: str, path: str) -> None:
    """Raise ValueError for an empty path, one with a name that is too long for a disk, or one in
    the home of an unknown user (`~nobody`)."""
    if not path:
        raise ValueError(f"{name}: is empty; give a folder")
    if any(len(os.fsencode(part)) > 255 for part in Path(path).parts):
        raise ValueError(f"{name}: {path[:40]}... is too long; give names of at most 255 bytes")
    try:
        Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{name}: {path}: there is no such user; give another folder") from error
