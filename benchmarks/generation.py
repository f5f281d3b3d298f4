"""Transitions and seconds that each method's data takes: the paper's figure of generation times,
and its table of the cost of SAD and of AD with trained policies.

    python benchmarks/generation.py            # writes results/ablations/generation/

One core, kernels compiled and warm, without files; a block is measured, and scaled to all tasks.
What several methods need is measured once, and all parts take turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from sad_hpc.aggregate.canvas import drawing
from sad_hpc.aggregate.comparison import family_name
from sad_hpc.aggregate.formats import write_csv
from sad_hpc.distill.bandits import distill_bandit_labels, pay, pull_arms
from sad_hpc.distill.block import Draw
from sad_hpc.distill.contexts import sample_episodes, sample_state_actions, sample_transitions
from sad_hpc.distill.labels import LabelRule, optimal_labels
from sad_hpc.distill.q_learning import sample_histories
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.distill.tabular import block_tables
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.families import TaskConfig
from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.json_files import write_json
from sad_hpc.storage.provenance import portable, provenance
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.tabular import TabularFamily

ROOT = Path(__file__).parent.parent
HORIZONS = {"gaussian_bandit": (20, 80, 320, 1280), "darkroom": (3, 7, 15, 49)}
"""The trust horizons N of SAD, by config."""
SOURCE_STEPS = 100_000
"""Steps of Q-learning in the histories of AD."""
REPEATS = 5

Part = Callable[[], int]
"""Makes a part of a block's data; returns the transitions that it took."""


def tabular_parts(
    family: TabularFamily, experiment: Experiment[TaskConfig], horizons: tuple[int, ...]
) -> dict[str, list[Part]]:
    """Return the parts of each method's data for a block of episodic tasks."""
    data, horizon = experiment.data, family.config.horizon
    draw = Draw.of(family, data, "train", 0, ("transitions", "episodes", "sad", "dpt", "dpt_star"))
    policy, streams = draw.policy, draw.streams
    tables, mdps = block_tables(family, "train", draw)
    tasks = (family, tables.mdps, mdps, policy)

    def context() -> int:
        sample_transitions(*tasks, streams["transitions"])
        return draw.count * horizon

    def episodes() -> int:
        sample_episodes(*tasks, streams["episodes"])
        return draw.count * horizon

    def histories() -> int:
        sample_histories(*tasks, SOURCE_STEPS, data.discount, streams["episodes"])
        return draw.count * SOURCE_STEPS

    def random_labels() -> int:
        sample_state_actions(*tasks[1:], streams["dpt"])
        return 0

    def oracle() -> int:
        states, _ = sample_state_actions(*tasks[1:], streams["dpt_star"])
        optimal_labels(tables.optimal[mdps, states], np.random.default_rng(0))
        return 0

    def labels(steps: int) -> Part:
        changed = LabelRule.of(data.model_copy(update={"trust_horizon": steps}), True)
        return lambda: (
            distill_labels(tables.mdps, mdps, policy, changed, streams["sad"]).transitions
        )

    return {
        "AD": [episodes],
        "AD, Q-learning": [histories],
        "DPT": [context, random_labels],
        "DIT": [episodes],
        "DPT*": [context, oracle],
        **{f"SAD, N = {steps}": [context, labels(steps)] for steps in horizons},
    }


def bandit_parts(
    family: BanditFamily, experiment: Experiment[TaskConfig], horizons: tuple[int, ...]
) -> dict[str, list[Part]]:
    """Return the parts of each method's data for a block of bandits."""
    data, horizon = experiment.data, family.config.horizon
    draw = Draw.of(family, data, "train", 0, ("tasks", "transitions", "sad", "dpt"))
    policy, streams, count = draw.policy, draw.streams, draw.count
    means = family.draw_means(count, np.random.default_rng(streams["tasks"]))
    generator = np.random.default_rng(0)

    def context() -> int:
        arms = pull_arms(policy, count * horizon, streams["transitions"]).reshape(count, horizon)
        pay(means, family.sigma, arms, generator)
        return count * horizon

    def random_labels() -> int:
        pull_arms(policy, count, streams["dpt"])
        return 0

    def labels(pulls: int) -> Part:
        rest = (policy, pulls, False, streams["sad"])
        return lambda: distill_bandit_labels(means, family.sigma, *rest)[1]

    return {
        "AD": [context],
        "DPT": [context, random_labels],
        "DIT": [context],
        "DPT*": [context],
        **{f"SAD, N = {pulls}": [context, labels(pulls)] for pulls in horizons},
    }


def measure(name: str) -> pd.DataFrame:
    """One row a method: transitions and seconds for all tasks of a paper's config."""
    experiment = load_experiment(ROOT / f"configs/paper/{name}.yaml")
    family = make_family(experiment.task)
    make_parts = bandit_parts if isinstance(family, BanditFamily) else tabular_parts
    needs = make_parts(family, experiment, HORIZONS[name])  # type: ignore[arg-type]
    costs = _medians(list(dict.fromkeys(part for parts in needs.values() for part in parts)))
    scale = experiment.data.tasks / experiment.data.block_tasks
    rows = []
    for method, parts in needs.items():
        seconds, transitions = (
            sum(column) for column in zip(*(costs[p] for p in parts), strict=True)
        )
        rows.append(
            {
                "family": family_name(family.name),
                "method": method,
                "tasks": experiment.data.tasks,
                "transitions": round(transitions * scale),
                "seconds": seconds * scale,
            }
        )
    return pd.DataFrame(rows)


def _medians(parts: list[Part]) -> dict[Part, tuple[float, float]]:
    """Seconds and transitions of each part, as medians of runs that take turns."""
    runs: dict[Part, list[tuple[float, int]]] = {part: [] for part in parts}
    for _ in range(REPEATS + 1):
        for part in parts:
            start = time.perf_counter()
            spent = part()
            runs[part].append((time.perf_counter() - start, spent))
    return {
        # The first run of a part compiles, or loads what was compiled.
        part: (
            statistics.median(seconds for seconds, _ in found[1:]),
            statistics.median(spent for _, spent in found[1:]),
        )
        for part, found in runs.items()
    }


def draw(path: Path, table: pd.DataFrame) -> None:
    """A panel a family, a dot a method."""
    families = table["family"].unique()
    with drawing(path, (5.0 * len(families), 3.6)) as figure:
        panels = figure.subplots(1, len(families), squeeze=False)[0]
        for axes, family in zip(panels, families, strict=True):
            rows = table[table["family"] == family].iloc[::-1]
            for _, row in rows.iterrows():
                color = "C4" if row["method"].startswith("SAD") else "C7"
                axes.plot(row["seconds"], row["method"], "o", color=color)
                axes.annotate(f"{row['seconds']:.2g}", (row["seconds"], row["method"]), fontsize=8,
                              xytext=(7, 0), textcoords="offset points", va="center")  # fmt: skip
            # Whole powers of ten, so that the axis has numbers to read.
            powers = np.log10(rows["seconds"].astype(float))
            axes.set_xlim(10 ** np.floor(powers.min()), 10 ** np.ceil(powers.max()))
            axes.set_xscale("log")
            axes.grid(axis="x", alpha=0.3)
            axes.set_xlabel(f"seconds for {rows['tasks'].iloc[0]:,} tasks, one core")
            axes.set_title(family)
            axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    about = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=about).parse_args()
    folder = ROOT / "results/ablations/generation"
    folder.mkdir(parents=True, exist_ok=True)
    found = pd.concat([measure(name) for name in HORIZONS], ignore_index=True)
    write_csv(folder / "generation.csv", found)
    draw(folder / "generation.png", found)
    write_json(folder / "provenance.json", portable(provenance()))
    print(found.to_string(index=False))
