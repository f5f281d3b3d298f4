"""Settings with one value for all rounds of distillation, or a list with one value for each."""

from typing import Annotated, Any, TypeVar

from pydantic import Discriminator, Tag

T = TypeVar("T")

ONE, LIST = "one value", "a list"
TAGS = ONE, LIST
"""Names that pydantic adds to the location of an error; they are not keys of a config."""


def _tag(value: Any) -> str:
    return LIST if isinstance(value, list) else ONE


PerRound = Annotated[Annotated[T, Tag(ONE)] | Annotated[list[T], Tag(LIST)], Discriminator(_tag)]
"""A value for all rounds, or a list with a value for each round."""


def first_round(value: T | list[T]) -> T:
    """Return the value of the first round."""
    return value[0] if isinstance(value, list) else value


def last_round(value: T | list[T]) -> T:
    """Return the value of the last round."""
    return value[-1] if isinstance(value, list) else value


def up_to(value: T | list[T], rounds: int) -> T | list[T]:
    """Return the values of the first rounds; a single value if they are equal."""
    if not isinstance(value, list):
        return value
    kept = value[:rounds]
    return kept[0] if all(each == kept[0] for each in kept) else kept
