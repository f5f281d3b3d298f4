"""The model, settings and random numbers that evaluations of all task families share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from sad_hpc.evaluate.acting import PAPER, ActingRule
from sad_hpc.evaluate.policy import Trained
from sad_hpc.experiment.sections import EvaluateConfig


@dataclass(frozen=True)
class Evaluation:
    """A model to evaluate, and how."""

    trained: Trained
    settings: EvaluateConfig
    generator: np.random.Generator
    """Random numbers of tasks and actions."""
    report: Callable[[int], None] = lambda units: None
    """Called with the number of finished units; see `families.n_units`."""
    chosen: ActingRule | None = None
    """Acting rule that `auto` has chosen; None: the settings give the rule."""

    def online_modes(
        self, before: int, units: int
    ) -> Iterator[tuple[str, ActingRule, "Evaluation"]]:
        """Yield the name, the acting rule and the evaluation of each online mode.

        Its `report` adds the units before it.

        Args:
            before: units that are finished before the first mode.
            units: units of a mode: episodes or pulls.
        """
        rules = {"online": ActingRule(self.settings.temperature, self.settings.greedy_after_reward)}
        if self.chosen is not None:
            rules = {"online": self.chosen, "sampled": PAPER}
        for number, (mode, rule) in enumerate(rules.items()):

            def report_all(done: int, first: int = before + number * units) -> None:
                self.report(first + done)

            yield mode, rule, replace(self, report=report_all)
