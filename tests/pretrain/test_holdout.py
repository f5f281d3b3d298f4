"""Held-out tasks: loss and label accuracy of a training."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sad_hpc.parallel.ranks import torch_process
from sad_hpc.pretrain.engine import join_process_group
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.holdout import Holdout
from sad_hpc.pretrain.questions import Batch
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.storage.run import Run

CPU = torch.device("cpu")


class Answering:
    """An engine whose module answers with given logits, task after task."""

    device = CPU

    def __init__(self, logits: torch.Tensor) -> None:
        self.module, self._logits, self._next = SimpleNamespace(logits=self._answer), logits, 0

    def _answer(self, batch: Batch) -> torch.Tensor:
        first, self._next = self._next, self._next + len(batch.labels)
        return self._logits[first : self._next]

    def eval(self) -> None: ...

    def train(self) -> None: ...


@pytest.fixture
def examples(tiny_run: Run) -> Examples:
    join_process_group(torch_process())
    return Examples.load(TrainingColumns(tiny_run, "SAD"), CPU)


def test_the_ideal_answers_have_no_excess_and_are_right_where_they_are_told(examples: Examples):
    assert examples.ideal is not None
    ideal = torch.from_numpy(examples.ideal.probabilities)
    found = Holdout(examples, 0, 1).measure(Answering(ideal.log()))
    assert found["excess_loss"] == pytest.approx(0, abs=1e-6)
    best = Holdout(examples, 0, 1).measure(Answering(torch.from_numpy(_optimal(examples))))
    assert best["told_accuracy"] == 1


def test_the_excess_is_the_difference_of_losses(examples: Examples):
    assert examples.ideal is not None
    shape = examples.ideal.probabilities.shape
    uniform = Holdout(examples, 0, 1).measure(Answering(torch.zeros(shape)))
    assert uniform["holdout_loss"] == pytest.approx(np.log(5), rel=1e-5)
    ideal = torch.from_numpy(examples.ideal.probabilities).log()
    known = Holdout(examples, 0, 1).measure(Answering(ideal))["holdout_loss"]
    assert uniform["excess_loss"] == pytest.approx(np.log(5) - known, rel=1e-4)


def test_every_rank_measures_its_own_rows_beside_their_own_ideal(examples: Examples):
    assert examples.ideal is not None
    shares = [
        Holdout(examples, rank, 3).measure(
            Answering(torch.from_numpy(examples.ideal.probabilities[rank::3]).log())
        )
        for rank in range(3)
    ]
    assert [share["excess_loss"] for share in shares] == pytest.approx([0, 0, 0], abs=1e-6)


def test_methods_without_labels_have_no_ideal(tiny_run: Run):
    join_process_group(torch_process())
    examples = Examples.load(TrainingColumns(tiny_run, "AD"), CPU)
    assert examples.ideal is None
    found = Holdout(examples, 0, 1).measure(Answering(torch.zeros(64, 9, 5)))
    assert set(found) == {"holdout_loss", "holdout_accuracy"}


def _optimal(examples: Examples) -> np.ndarray:
    """(n, T + 1, A): logits of an optimal action after every prefix."""
    assert examples.ideal is not None
    prefixes = examples.ideal.probabilities.shape[1]
    return np.repeat(examples.ideal.right[:, None].astype(np.float32), prefixes, axis=1)
