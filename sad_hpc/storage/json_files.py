"""JSON files: atomic writes, reads that take any content, types, and a checksum inside (a seal)."""

import hashlib
import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from sad_hpc.storage import plain_json
from sad_hpc.storage.files import atomic_path, read_whole, sync_names, write_error

T = TypeVar("T")

Moment = Annotated[float, Field(ge=0, le=1e12)]
"""Seconds since the epoch, in a file that may be damaged."""

_adapter: Any = cache(TypeAdapter)  # building one takes a millisecond


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, and sync its folder.

    A JSON file may list other files of its folder, such as shards; after this call all their names
    are on disk.  Syncing the folder after every shard would take as long as writing the shards.
    """
    text = json.dumps(content, indent=2) + "\n"
    with atomic_path(path, len(text)) as temporary:
        temporary.write_text(text, encoding="utf-8")
    try:
        sync_names(path.parent)
    except OSError as error:
        raise write_error(path, error) from error


def parse_json(path: Path) -> Any:
    """Return the content of a JSON file; see `plain_json.parse`.

    Raises:
        OSError: the file cannot be read.
        ValueError: its content is not plain JSON.
    """
    return plain_json.parse(read_whole(path, plain_json.MAX_BYTES))


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, or None if it is missing or not plain JSON."""
    try:
        return parse_json(path)
    except (OSError, ValueError):
        return None


def read_json_lines(path: Path) -> list[Any]:
    """Return the values of a file's lines; empty if there is no such file.

    Other lines than plain JSON are skipped, such as one that a stopped job left unfinished.

    Raises:
        OSError: the file cannot be read.
    """
    found = []
    with suppress(FileNotFoundError):
        for line in read_whole(path).splitlines():
            with suppress(ValueError):
                found.append(plain_json.parse(line))
    return found


def typed(kind: type[T], content: Any) -> T | None:
    """Return JSON values converted to `kind`, such as a dataclass; None if the types do not match.

    Unknown keys are ignored, since a later version may have written them.
    """
    try:
        return _adapter(kind).validate_python(content)
    except (ValidationError, OverflowError):
        return None


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """Return JSON values with their checksum under `seal`."""
    text = json.dumps(content, sort_keys=True).encode()
    return {**content, "seal": hashlib.blake2b(text, digest_size=16).hexdigest()}


def unsealed(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content without its seal.

    Raises:
        ValueError: the seal does not match the content.
    """
    bare = {key: value for key, value in content.items() if key != "seal"}
    if sealed(bare) != content:
        raise ValueError("altered since it was written")
    return bare
