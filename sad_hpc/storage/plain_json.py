"""JSON as a run's files need it: plain values that are neither deep nor huge.

The files may be damaged or a stranger's, and what is read here is compared, printed and used in
paths.
"""

import json
from typing import Any

MAX_DEPTH = 64
"""Of objects and lists within each other; a config file has at most half of it."""

MAX_BYTES = 2**27
"""The manifest of 500,000 shards has as many."""


def parse(content: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is no JSON, is deeper than MAX_DEPTH, is larger than MAX_BYTES, or holds a
            character that no path can have.
    """
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES:,} bytes")
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError(f"deeper than {MAX_DEPTH} levels") from None
    _check(value)
    return value


def _check(value: Any) -> None:
    """Looks at all values level by level, without recursion."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each
                inner += each.values()
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, str):
                _check_text(each)
        if not inner:
            return
        level = inner
    raise ValueError(f"deeper than {MAX_DEPTH} levels")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ValueError("a text has a NUL character")
    text.encode("utf-8", "surrogateescape")  # UnicodeEncodeError is a ValueError
