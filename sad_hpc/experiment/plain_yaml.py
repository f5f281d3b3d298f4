"""YAML as a config needs it: plain values, no key twice, and nothing that grows as it is read."""

import json
import re
from typing import Any

import yaml

MAX_CHARACTERS = 2**20
"""For as much PyYAML takes seconds; the largest config here has a thousandth of it."""

MAX_DEPTH = 32
"""Of sections and lists within each other."""


def parse(text: str) -> Any:
    """The value that `text` says, as JSON has it: of its types, and with keys that are strings.

    Raises:
        ValueError: it is no YAML, or has something that no config needs: an alias (whose expansion
            may be endless), a tag, a key twice, a value deep inside others, very much text.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"more than {MAX_CHARACTERS:,} characters")
    try:
        return json.loads(json.dumps(yaml.load(text, _Loader)))
    except yaml.MarkedYAMLError as error:
        reason = ", ".join(filter(None, (error.context, error.problem)))
        mark = error.problem_mark or error.context_mark
        raise ValueError(f"line {mark.line + 1}: {reason}" if mark else reason) from None
    except (yaml.YAMLError, ArithmeticError) as error:
        raise ValueError(" ".join(str(error).split())) from None


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 1e-3 (no dot) as a string, 2024-01-01 as a date and << as a merge of sections;
    nobody here means that."""

    yaml_implicit_resolvers = {
        first: [entry for entry in entries if entry[0].rpartition(":")[2] not in
                ("timestamp", "merge", "value")]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }  # fmt: skip

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise _refused("aliases (*) are not read here", event)
        if event.tag is not None:
            raise _refused("tags (!) are not read here", event)
        if self._depth == MAX_DEPTH:
            raise _refused(f"deeper than {MAX_DEPTH} levels", event)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refused("a key must be a word", key_node)
            if key_node.value in seen:
                raise _refused(f"key {key_node.value!r} is there twice", key_node)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _refused(reason: str, place: Any) -> yaml.MarkedYAMLError:
    """`place` is a node or an event."""
    return yaml.MarkedYAMLError(problem=reason, problem_mark=place.start_mark)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)
