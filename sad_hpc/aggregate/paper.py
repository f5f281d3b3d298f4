"""Data of the paper: names of task families, comparison tables, and the values they imply."""

from sad_hpc.evaluate.result import HIGHER_IS_BETTER
from sad_hpc.experiment.methods import BASELINES
from sad_hpc.tasks.base import TaskFamily

FAMILY_NAMES = {
    "gaussian_bandit": "Gaussian Bandits",
    "bernoulli_bandit": "Bernoulli Bandits",
    "darkroom": "Darkroom",
    "darkroom_large": "Darkroom-Large",
    "miniworld": "Miniworld",
}
"""Task families in the order of the paper's tables."""

AVERAGE = "Average"

IMPROVEMENTS: dict[str, dict[str, tuple[float, ...]]] = {
    "offline": {
        "gaussian_bandit": (647.0, 508.9, 354.0, -5.2),
        "bernoulli_bandit": (553.4, 426.8, 289.5, -18.7),
        "darkroom": (2162.2, 2069.6, 149.3, -1.3),
        "darkroom_large": (6325.5, 6389.9, 266.8, -14.9),
        "miniworld": (687.7, 684.2, 122.1, -52.9),
        AVERAGE: (2075.2, 2015.9, 236.3, -18.6),
    },
    "online": {
        "gaussian_bandit": (933.6, 942.5, 273.9, -0.4),
        "bernoulli_bandit": (846.8, 830.9, 313.9, -0.2),
        "darkroom": (3053.9, 2893.8, 41.7, -3.4),
        "darkroom_large": (10626.9, 10221.8, 24.7, -0.1),
        "miniworld": (582.9, 580.1, 21.7, -57.3),
        AVERAGE: (3208.8, 3093.8, 135.2, -12.3),
    },
}
"""Improvements in percent over BASELINES, by mode and task family: the paper's tables
compare_offline and compare_online."""


def implied_values(mode: str, family: str, metric: str, random: float) -> dict[str, float]:
    """Return the values that the paper's percentages imply, by method.

    The paper has no absolute values.  This inference assumes that its AD, which learns from random
    play, performs like random play.  SAD's value follows from its percentage over AD, and the other
    values from SAD's percentages over them.  If AD was better, all values are too low (too high for
    suboptimality and regret).

    Args:
        mode: offline or online.
        family: the task family; a family that the paper does not have gives an empty dictionary.
        metric: return, suboptimality or regret.
        random: the value of our uniformly random policy in this mode; may be NaN.
    """
    if family not in FAMILY_NAMES:
        return {}
    ratios = {
        name: 1 + each / 100
        for name, each in zip(BASELINES, IMPROVEMENTS[mode][family], strict=True)
    }
    if HIGHER_IS_BETTER[metric]:
        sad = random * ratios["AD"]
        others = {name: sad / ratios[name] for name in ratios}
    else:
        sad = random / ratios["AD"]
        others = {name: sad * ratios[name] for name in ratios}
    return {**{name: others[name] for name in BASELINES if name != "AD"}, "SAD": sad}


def environment_title(name: str, family: TaskFamily) -> str:
    """Return an environment's name for readers.

    It is the paper's, the family's own title, or the id of a Gymnasium environment.

    Args:
        name: of the task family in results.
        family: of the tasks.
    """
    if name in FAMILY_NAMES:
        return FAMILY_NAMES[name]
    env = getattr(family.config, "env", None)
    return family.title or (family_name(name) if env is None else str(env).rpartition(":")[2])


def family_name(family: str) -> str:
    """Return the paper's name of a task family; other families keep their own name."""
    words = family.replace("_", " ")
    return FAMILY_NAMES.get(family, words[:1].upper() + words[1:])
