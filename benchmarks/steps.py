"""Steps of a training on random data, by this suite's engine or by torch alone."""

from collections.abc import Callable

import torch
from measure import void
from torch import Tensor

from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.sections import ModelConfig, PretrainConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.transformer import Transformer
from sad_hpc.parallel.ranks import torch_process
from sad_hpc.pretrain.engine import make_engine
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.learner import Learner
from sad_hpc.pretrain.questions import Batch
from sad_hpc.pretrain.trainer import take_step
from sad_hpc.tasks.base import TaskFamily

BATCH = 64


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
        self.family, self._process = family, torch_process()
        stateless = Inputs.of_family(family).stateless
        self._examples = Examples(METHODS["SAD"], columns, 0, stateless)
        self.answers = len(columns["labels"]) * (family.config.horizon + 1)
        """Of an epoch, all ranks together: one after every prefix of a context."""

    def by_engine(self, **changes: float) -> Callable[[], None]:
        """As `sad-hpc pretrain` makes them, with changes to the model's settings."""
        config = PretrainConfig(epochs=1, batch_size=BATCH, gradient_clipping=0.0)
        engine = make_engine(self._learner(**changes), config, self._process)
        return self._epoch(lambda batch: void(take_step(engine, batch, 1e-3)))

    def by_torch(self, fused: bool) -> Callable[[], None]:
        """Without DeepSpeed, with the fused AdamW or the other one."""
        learner = self._learner()
        optimizer = torch.optim.AdamW(learner.parameters(), fused=fused)

        def step(batch: Batch) -> None:
            optimizer.zero_grad()
            learner(batch).backward()
            optimizer.step()

        return self._epoch(step)

    def _epoch(self, step: Callable[[Batch], None]) -> Callable[[], None]:
        def run() -> None:
            rank, share = self._process.rank, BATCH // self._process.world_size
            mine = slice(rank * share, (rank + 1) * share)
            for number, rows in enumerate(self._examples.order(0, 0).split(BATCH)):
                drawn = self._examples.draws(0, number, len(rows))
                step(self._examples.batch(rows[mine], drawn[mine]))

        run()  # warm
        return run

    def _learner(self, **changes: float) -> Learner:
        return Learner(Transformer(ModelConfig(**changes), Inputs.of_family(self.family)))
