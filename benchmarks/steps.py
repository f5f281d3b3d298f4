"""Steps of a training on random data: as `sad-hpc pretrain` makes them, or without DeepSpeed."""

from collections.abc import Callable
from typing import Literal

import torch
from arithmetic import step_operations
from measure import void
from torch import Tensor

from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.sections import ModelConfig, PretrainConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.fused.kernel import compile_kernel
from sad_hpc.model.transformer import Transformer
from sad_hpc.parallel.ranks import torch_process
from sad_hpc.pretrain.engine import make_engine, on_first_rank
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.learner import Learner
from sad_hpc.pretrain.questions import Batch
from sad_hpc.pretrain.trainer import take_step
from sad_hpc.tasks.base import TaskFamily

BATCH = 64
CONFIG = PretrainConfig(epochs=1, batch_size=BATCH)
Way = Literal["auto", "torch"]
"""A value of `pretrain.kernel`."""


def random_columns(family: TaskFamily, tasks: int) -> dict[str, Tensor]:
    """A dataset's columns (see `Examples`), of random numbers."""
    horizon, width = family.config.horizon, len(family.state_center)

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(high, (tasks, *shape), dtype=torch.uint8)

    columns = {
        "states": draw(7, horizon, width),
        "actions": draw(family.n_actions, horizon),
        "rewards": torch.rand(tasks, horizon),
        "next_states": draw(7, horizon, width),
        "query_states": draw(7, 1, width),
        "labels": draw(family.n_actions, 1),
    }
    if family.image_size is not None:
        image = (family.image_size, family.image_size, 3)
        columns |= {"images": draw(255, horizon, *image), "query_images": draw(255, 1, *image)}
    return columns


class Steps:
    """Epochs of SAD over some columns, in batches that the ranks of a process group share.

    Args:
        family: that the columns are of.
        columns: of a dataset, see `Examples`.
    """

    def __init__(self, family: TaskFamily, columns: dict[str, Tensor]) -> None:
        self.family, self.columns, self._process = family, columns, torch_process()
        stateless = Inputs.of_family(family).stateless
        self._examples = Examples(METHODS["SAD"], columns, 0, stateless)
        tasks, answers = len(columns["labels"]), family.config.horizon + 1
        self.count = tasks // BATCH
        """Steps of an epoch."""
        self.answers = tasks * answers
        """Answers of an epoch: one after every prefix of each context."""
        self.operations = step_operations(self._model(), torch.arange(answers).expand(tasks, -1))

    def by_engine(self, way: Way = "auto") -> Callable[[], None]:
        """Return an epoch of the engine's steps, with `pretrain.kernel: <way>`."""
        learner = self._learner()
        engine = make_engine(learner, CONFIG, self._process)
        _choose_way(learner, way)
        return self._epoch(
            learner, lambda batch: void(take_step(engine, batch, 1e-3, CONFIG.gradient_clipping))
        )

    def without_engine(self) -> Callable[[], None]:
        """By the kernel and torch's AdamW alone, on one rank."""
        learner = self._learner()
        _choose_way(learner, "auto")
        optimizer = torch.optim.AdamW(learner.parameters(), fused=True)

        def step(batch: Batch) -> None:
            optimizer.zero_grad()
            learner(batch).backward()
            torch.nn.utils.clip_grad_norm_(learner.parameters(), CONFIG.gradient_clipping)
            optimizer.step()

        return self._epoch(learner, step)

    def _epoch(self, learner: Learner, step: Callable[[Batch], None]) -> Callable[[], None]:
        def run() -> None:
            rank, share = self._process.rank, BATCH // self._process.world_size
            mine = slice(rank * share, (rank + 1) * share)
            for number, rows in enumerate(self._examples.order(0, 0).split(BATCH)):
                drawn = self._examples.draws(0, number, len(rows))
                learner.begin_step(0, number, rank)
                step(self._examples.batch(rows[mine], drawn[mine]))

        run()  # warm
        return run

    def _learner(self) -> Learner:
        return Learner(self._model())

    def _model(self) -> Transformer:
        return Transformer(ModelConfig(), Inputs.of_family(self.family))


def _choose_way(learner: Learner, way: Way) -> None:
    """Raises AssertionError where the kernel is wanted, but cannot do this model's work."""
    if way == "torch":
        return
    reason = learner.use_kernel()
    assert reason is None, reason
    on_first_rank(compile_kernel)
