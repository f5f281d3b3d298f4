"""How policies look: one colour a method in all figures, and shades of grey for references."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from matplotlib import colormaps

from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.rows import is_recipe, method_of

Color = str | tuple[float, float, float, float]
Dashes = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Style:
    """Of a row."""

    color: Color
    dashes: Dashes = "-"
    hatch: str | None = None
    """Of its bar."""
    width: float = 1.8
    layer: int = 4


COLORS: dict[str, Color] = {method.name: method.color for method in METHODS.values()}
# SAD often runs along DPT*, its upper bound: a wide line below a narrow one shows both.
WIDTHS = {"SAD": (1.8, 5), "DPT*": (3.6, 3)}
"""Width and layer by method."""
RECIPES: tuple[tuple[Dashes, str], ...] = (
    ((0, (3, 1)), "//"),
    ((0, (1.5, 1.2)), ".."),
    ((0, (6, 1.5, 1.5, 1.5)), "xx"),
)
"""Dashes and hatch of a method's recipe (`SAD+`), then of its variants in their order; the last is
that of all further ones."""
OTHER_COLORS = colormaps["viridis"]
"""Of variants and points of a sweep, in their order."""
REFERENCE_STYLES: dict[str, tuple[Color, Dashes]] = {
    "ideal": ("#333333", "-"),
    "ideal, history": ("#333333", (0, (8, 1.5, 1.5, 1.5))),
    "optimal": ("#595959", (0, (6, 2))),
    "random": ("#7F7F7F", (0, (2, 2))),
    "UCB": ("#4D4D4D", (0, (5, 1, 1, 1))),
    "empirical mean": ("#666666", (0, (1, 1))),
}
"""Colour and dashes of the reference policies."""
REFERENCE_NAMES = {"ideal": "ideal learner", "ideal, history": "ideal learner, history"}
OTHER_REFERENCE_STYLE: tuple[Color, Dashes] = ("#B3B3B3", (0, (3, 3)))


def row_styles(names: Iterable[str]) -> dict[str, Style]:
    """A method's own colour, the same with other dashes for its recipes, and a colour of a scale
    for every other row."""
    distinct = list(dict.fromkeys(names))
    own = {name: _of_method(name) for name in METHODS}
    recipes = [name for name in distinct if is_recipe(name)]
    for name in recipes:
        method = method_of(name) or ""
        variants = [each for each in recipes if method_of(each) == method and "," in each]
        before = 1 + variants.index(name) if name in variants else 0
        dashes, hatch = RECIPES[min(before, len(RECIPES) - 1)]
        own[name] = replace(own[method], dashes=dashes, hatch=hatch)
    others = [name for name in distinct if name not in own]
    steps = max(1, len(others) - 1)
    scale = [0.05 + 0.85 * number / steps for number in range(len(others))]
    return own | {name: Style(OTHER_COLORS(x)) for name, x in zip(others, scale, strict=True)}


def _of_method(name: str) -> Style:
    width, layer = WIDTHS.get(name, (Style.width, Style.layer))
    return Style(COLORS[name], width=width, layer=layer)


def method_label(method: str, n_seeds: int) -> str:
    """Such as `SAD (4 seeds)`."""
    return verbatim(f"{method} ({n_seeds} seed{'' if n_seeds == 1 else 's'})")


def verbatim(text: str) -> str:
    """Text that matplotlib shows unchanged: a dollar sign begins no formula."""
    return text.replace("$", r"\$")


def reference_style(name: str) -> dict[str, Any]:
    """Matplotlib's words for a reference's line, its label included."""
    color, dashes = REFERENCE_STYLES.get(name, OTHER_REFERENCE_STYLE)
    label = verbatim(REFERENCE_NAMES.get(name, name))
    return {"color": color, "linestyle": dashes, "lw": 1.6, "label": label}
