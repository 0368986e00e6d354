"""What a file is if it is not UTF-8 text, by its first bytes, and how to turn it into text."""

from __future__ import annotations

import codecs
import unicodedata

HEAD, FEWEST = 1 << 12, 32  # bytes that are looked at; with fewer, no encoding is guessed

# Signatures with their places in the file. Each has a character that no text has, or is too long
# to begin one by chance.
ARCHIVES = {
    (257, b"ustar"): ("a tar archive", "tar -xf FILE"),
    (0, b"PK\x03\x04"): ("a zip archive, or an Office document", "unzip FILE"),
    (0, b"\x1f\x8b\x08"): ("a gzip archive", "gunzip FILE, or call it FILE.gz"),
    (4, b"1AY&SY"): ("a bzip2 archive", "bunzip2 FILE"),
    (0, b"\xfd7zXZ\0"): ("an xz archive", "unxz FILE"),
    (0, b"\x28\xb5\x2f\xfd"): ("a zstd archive", "unzstd FILE, or call it FILE.zst"),
    (0, b"\x04\x22\x4d\x18"): ("an lz4 archive", "unlz4 FILE"),
    (0, b"\x5d\0\0"): ("an lzma archive", "unlzma FILE"),
    (0, b"!<arch>\n"): ("an ar archive, or a Debian package", "ar x FILE"),
    (0, b"7z\xbc\xaf\x27\x1c"): ("a 7z archive", "7z x FILE"),
    (0, b"Rar!\x1a\x07"): ("a rar archive", "unrar x FILE"),
}
OTHERS = {
    (0, b"%PDF-"): "a PDF document",
    (0, b"{\\rtf1"): "a rich text document",
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"): "an old Office document",
    (0, b"SQLite format 3\0"): "an SQLite database",
    (0, b"PAR1\x15"): "a parquet file",
    (0, b"ARROW1\0\0"): "an Arrow file",
    (0, b"\x89HDF\r\n"): "an HDF5 file",
    (0, b"\x93NUMPY"): "a NumPy array",
    (0, b"\x89PNG\r\n"): "a PNG image",
    (0, b"\xff\xd8\xff"): "a JPEG image",
    (0, b"GIF87a"): "a GIF image",
    (0, b"GIF89a"): "a GIF image",
    (0, b"II*\0"): "a TIFF image",
    (0, b"MM\0*"): "a TIFF image",
    (8, b"WEBPVP8"): "a WebP image",
    (8, b"WAVEfmt "): "a WAV recording",
    (0, b"ID3\x03"): "an MP3 recording",
    (0, b"ID3\x04"): "an MP3 recording",
    (0, b"OggS\0"): "an Ogg recording",
    (0, b"fLaC\0"): "a FLAC recording",
    (4, b"ftyp"): "a video",
    (0, b"\x7fELF"): "a program",
}
MARKS = {"UTF-32LE": codecs.BOM_UTF32_LE, "UTF-32BE": codecs.BOM_UTF32_BE,
         "UTF-16LE": codecs.BOM_UTF16_LE, "UTF-16BE": codecs.BOM_UTF16_BE}  # fmt: skip
CONTROLS = bytes({*range(32)} - {*b"\t\n\f\r\x1b"})
DIVIDERS = " \n\r\u3001\u3002\uff0c"  # which any text has: CJK commas and full stops, too


def kind_of(head: bytes) -> str | None:
    """What a file is, and what to do, from its first bytes; None if they do not tell."""
    for (at, signature), (what, unpack) in ARCHIVES.items():
        if head[at:].startswith(signature):
            return f"is {what}; unpack it first: {unpack}"
    for (at, signature), what in OTHERS.items():
        if head[at:].startswith(signature):
            return f"is {what}, and not text; choose other files"
    return None


def wide_encoding(head: bytes, is_utf8: bool) -> str | None:
    """The UTF-16 or UTF-32 encoding of the beginning of a text; None if it has neither.

    In valid UTF-8, most bytes at even or at odd places must be below 32, as the upper halves of
    many scripts are: a few NULs are a text's own. Otherwise, the text must have a divider.
    """
    for name, mark in MARKS.items():
        if head.startswith(mark):
            return name
    halves = [[byte < 32 for byte in head[start::2]] for start in (0, 1)]
    is_wide = any(sum(half) > 0.75 * len(half) for half in halves)
    if len(head) < FEWEST or (is_utf8 and not (is_wide and set(CONTROLS) & set(head))):
        return None
    found = {}
    for name in MARKS:
        try:
            text = codecs.getincrementaldecoder(name)().decode(head)
        except UnicodeDecodeError:
            continue
        odd = sum(unicodedata.category(c)[0] == "C" and c not in "\t\n\f\r" for c in text)
        if text and odd <= len(text) / 100 and (is_utf8 or set(DIVIDERS) & set(text)):
            found[name] = len({ord(c) >> 8 for c in text})  # few scripts, in the right order
    return min(found, key=found.__getitem__, default=None)
