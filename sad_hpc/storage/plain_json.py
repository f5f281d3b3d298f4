"""Reading of JSON files that may be damaged or untrusted: size, depth and characters are limited.

The values are later compared, printed and used in paths.
"""

import json
from typing import Any

MAX_DEPTH = 64
"""Most levels of nested objects and lists; twice those of a config file."""

MAX_BYTES = 2**27
"""Most bytes of a file; the manifest of 500,000 shards has as many."""


def parse(content: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON, is deeper than MAX_DEPTH, is larger than MAX_BYTES, or
            holds a character that is not allowed in a path.
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
    """Check depth and strings level by level, without recursion."""
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
        raise ValueError("a string contains a NUL character")
    text.encode("utf-8", "surrogateescape")  # UnicodeEncodeError is a ValueError
