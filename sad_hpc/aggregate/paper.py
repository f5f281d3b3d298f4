"""What the paper prints: names of task families, and its comparison tables."""

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
"""Percent, by mode and task family, over BASELINES: tables compare_offline and compare_online."""


def family_name(family: str) -> str:
    """The paper's name of a task family; a family that it does not have keeps its own."""
    words = family.replace("_", " ")
    return FAMILY_NAMES.get(family, words[:1].upper() + words[1:])
