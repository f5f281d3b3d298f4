"""A restricted YAML for configs: plain values, unique keys, no aliases and no tags."""

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

MAX_CHARACTERS = 2**18
"""Most characters of a config.  ruamel.yaml takes seconds for these; shipped configs are a hundred
times smaller."""

MAX_DEPTH = 32
"""Most levels of nested sections and lists."""

MAX_DIGITS = 400
"""Most characters of a number."""

INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)")
WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
"""Words with a value in YAML 1.2's core schema.  Plain scalars are these, numbers or strings."""


def parse(text: str) -> Any:
    """Return the value of `text` by YAML 1.2's core schema; keys are strings.

    Raises:
        ValueError: the text is not valid YAML, is too long or too deeply nested, or contains an
            alias (which may expand without limit), a tag or a repeated key.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"more than {MAX_CHARACTERS:,} characters")
    try:
        return _Builder(YAML(typ="safe", pure=True).parse(io.StringIO(text))).document()
    except MarkedYAMLError as error:
        reason = ", ".join(filter(None, (error.context, error.problem)))
        mark = error.problem_mark or error.context_mark
        raise ValueError(f"line {mark.line + 1}: {reason}" if mark else reason) from None
    except (YAMLError, ArithmeticError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def written(value: Mapping[str, Any]) -> str:
    """Return the YAML text of `value`, which `parse` reads back unchanged."""
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.allow_unicode = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = io.StringIO()
    writer.dump(value, text)
    return text.getvalue()


class _Builder:
    """Builder of a document's value from the events of its text."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events

    def document(self) -> Any:
        """Return the value of the only document; None if there is none."""
        value = None
        for number, event in enumerate(self._content()):
            if number:
                raise _refused("a second document (---) is not supported", event)
            value = self._value(event, depth=0)
        return value

    def _content(self) -> Iterator[Any]:
        """Return the events at which a document's value begins."""
        values = (ScalarEvent, SequenceStartEvent, MappingStartEvent, AliasEvent)
        return (event for event in self._events if isinstance(event, values))

    def _value(self, event: Any, depth: int) -> Any:
        if isinstance(event, AliasEvent):
            raise _refused("aliases (*) are not supported", event)
        if event.tag is not None:
            raise _refused("tags (!) are not supported", event)
        if depth == MAX_DEPTH:
            raise _refused(f"deeper than {MAX_DEPTH} levels", event)
        if isinstance(event, SequenceStartEvent):
            return [self._value(entry, depth + 1) for entry in self._until(SequenceEndEvent)]
        if isinstance(event, MappingStartEvent):
            return self._mapping(depth)
        return event.value if event.style else _plain(event)

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in self._until(MappingEndEvent):
            if not isinstance(key, ScalarEvent):
                raise _refused("a key must be a word", key)
            if key.tag is not None:
                raise _refused("tags (!) are not supported", key)
            if key.value in found:
                raise _refused(f"repeated key {key.value!r}", key)
            found[key.value] = self._value(next(self._events), depth + 1)
        return found

    def _until(self, end: type[Any]) -> Iterator[Any]:
        while not isinstance(event := next(self._events), end):
            yield event


def _plain(event: ScalarEvent) -> Any:
    """Return the value of an unquoted scalar."""
    text = event.value
    if text in WORDS:
        return WORDS[text]
    number = int if INTEGER.fullmatch(text) else float if FLOAT.fullmatch(text) else None
    if number is None:
        return text
    if len(text) > MAX_DIGITS:
        raise _refused(f"a number of more than {MAX_DIGITS} digits", event)
    if number is int:
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf"))


def _refused(reason: str, event: Any) -> MarkedYAMLError:
    return MarkedYAMLError(problem=reason, problem_mark=event.start_mark)
