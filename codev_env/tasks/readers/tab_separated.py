"""Records of tab-separated values, quoted as `csv` and pandas do, as bytes."""

from __future__ import annotations

from typing import BinaryIO


def next_record(file: BinaryIO) -> tuple[bytes, int]:
    """Read one record, which may contain line ends inside quotes; returns it with its number of lines."""
    lines, is_open = [file.readline()], False
    while is_open := leaves_open(lines[-1], is_open):
        if not (line := file.readline()):
            break
        lines.append(line)
    return b"".join(lines), len(lines)


def leaves_open(text: bytes, is_open: bool) -> bool:
    """Whether the quotes of the last field are open after a text.

    Args:
        text: A record, a line of one, or the part of a line between two tabs.
        is_open: Whether they are open before it.
    """
    if b'"' not in text:
        return is_open
    for piece in text.split(b"\t"):
        odd = piece.count(b'"') % 2 == 1
        is_open = not odd if is_open else odd and piece.startswith(b'"')
    return is_open


def cells_of(record: bytes) -> list[bytes]:
    """Return a record's fields without their quotes.

    The standard library's reader has a limit on field lengths, one for the whole process, that images exceed.
    """
    line = record.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
    if b'"' not in line:
        return line.split(b"\t")
    found = []
    for piece in _split(line):
        quoted = len(piece) >= 2 and piece.startswith(b'"') and piece.endswith(b'"')
        found.append(piece[1:-1].replace(b'""', b'"') if quoted else piece)
    return found


def _split(line: bytes) -> list[bytes]:
    """Split at tabs outside quotes."""
    found: list[list[bytes]] = []
    is_open = False
    for piece in line.split(b"\t"):
        if is_open:
            found[-1].append(piece)
        else:
            found.append([piece])
        is_open = leaves_open(piece, is_open)
    return [b"\t".join(pieces) for pieces in found]
