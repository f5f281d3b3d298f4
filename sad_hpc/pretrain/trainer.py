"""The training loop of one rank: steps, epochs, checkpoints and metrics.

Every random choice is a function of (seed, epoch, step, rank).  A checkpoint therefore needs only
the position, and an interrupted run has the same final weights as an uninterrupted one.
"""

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sad_hpc.errors import DivergedError
from sad_hpc.experiment.sections import PretrainConfig
from sad_hpc.model.finite import RecentSteps, all_finite
from sad_hpc.model.weights import WEIGHTS, save_weights
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.pretrain.batches import Batches
from sad_hpc.pretrain.best_weights import Best, BestWeights
from sad_hpc.pretrain.checkpoint import Checkpoints
from sad_hpc.pretrain.clipping import clip_and_step
from sad_hpc.pretrain.engine import precision_of
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.holdout import Holdout
from sad_hpc.pretrain.metrics import MetricsLog
from sad_hpc.pretrain.questions import Batch
from sad_hpc.pretrain.rank_sync import Decision, RankConsensus
from sad_hpc.pretrain.validation import Score, Validation
from sad_hpc.storage.progress import Progress
from sad_hpc.storage.stage_folder import METRICS, StageFolder


def learning_rate(config: PretrainConfig, step: int, steps: int) -> float:
    """Return the learning rate of step 0 <= `step` < `steps`."""
    warmup = config.warmup * steps
    if step < warmup:
        return config.learning_rate * min(1.0, (step + 1) / warmup)
    if config.schedule == "constant":
        return config.learning_rate
    progress = (step - warmup) / (steps - warmup)
    return config.learning_rate * (1 + math.cos(math.pi * progress)) / 2


def take_step(
    engine: Any,
    batch: Batch,
    rate: float,
    limit: float,
    begin: Callable[[int], None] = lambda part: None,
) -> tuple[Tensor, Tensor]:
    """Take one optimizer step on this rank's share of a batch, in parts (`pretrain.accumulate`).

    Args:
        engine: DeepSpeed engine.
        batch: this rank's examples.
        rate: learning rate.
        limit: largest norm of the gradient; 0: no clipping.
        begin: function that is called with the number of each part before its pass.

    Returns:
        the loss, and the norm of all ranks' mean gradient before clipping.
    """
    for group in engine.optimizer.param_groups:
        group["lr"] = rate
    losses = []
    for number, part in enumerate(batch.split(engine.gradient_accumulation_steps())):
        begin(number)
        loss = engine(part)
        engine.backward(loss)
        norm = clip_and_step(engine, limit)
        losses.append(loss.detach())
    return torch.stack(losses).mean(), norm.detach().to(losses[0].device)


class Trainer:
    """One rank of a training.

    Args:
        config: settings of the training.
        engine: DeepSpeed engine with model and optimizer.
        batches: the training batches.
        examples: examples that include the held-out ones.
        folder: folder of weights, checkpoints and metrics.
        signature: signature of the training.
        seed: seed of the training.
        score: offline return of weights on validation tasks; None: there are none.
    """

    def __init__(
        self,
        config: PretrainConfig,
        engine: Any,
        batches: Batches,
        examples: Examples,
        folder: StageFolder,
        signature: str,
        seed: int,
        score: Score | None = None,
    ) -> None:
        self._config, self._engine, self._tokens = config, engine, examples.tokens
        self._batches, self._per_epoch = batches, batches.per_epoch
        self._folder, self._signature, self._seed = folder, signature, seed
        self._rank, self._world_size = dist.get_rank(), dist.get_world_size()
        self._checkpoints = Checkpoints(folder.path, signature, self._world_size)
        self._holdout = Holdout(examples, self._rank, self._world_size)
        self._validation = Validation(config, self._holdout, score) if score else None
        self._best = BestWeights(config)
        self._step = 0
        is_first = self._rank == 0
        self._consensus = RankConsensus(engine.device, is_first, config.checkpoint_minutes)
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=engine.device)
        self._recent = RecentSteps(engine.device)

    def train(self) -> None:
        """Train to the last epoch, and write the weights and the completion marker."""
        self._restore()
        total = self._config.epochs * self._per_epoch
        if self._rank > 0:
            self._epochs(None, None)
            return
        log = MetricsLog(self._folder.path, self._step, self._config.trackers)
        with (
            closing(log),
            Progress(
                self._folder, total, "steps", self._step, self._config.log_seconds
            ) as progress,
        ):
            self._epochs(progress, log)
        path, metrics = self._folder.path / WEIGHTS, log.last
        if (best := self._best.found) is not None:
            self._engine.module.flat.data.copy_(best.weights)
            metrics = best.metrics
        self._folder.complete(
            outputs=[WEIGHTS],
            records=[METRICS],
            checksum=save_weights(path, self._engine.module.named_weights(), self._signature),
            ranks=self._world_size,
            precision=precision_of(self._engine),
            **metrics,
        )

    def _restore(self) -> None:
        position = self._checkpoints.load(self._engine)
        if position is not None:
            self._step = position["step"]
            self._loss_sum.fill_(position["loss_sum"])
            if position["best"] is not None:
                self._best.found = Best(**position["best"])

    def _epochs(self, progress: Progress | None, log: MetricsLog | None) -> None:
        self._consensus.start(self._step)
        for epoch in range(self._step // self._per_epoch, self._config.epochs):
            started, first_step = time.monotonic(), self._step
            for batch in range(self._step - epoch * self._per_epoch, self._per_epoch):
                self._train_step()
                if progress is not None:
                    progress.update(self._step)
                # An epoch's last step is saved with the epoch's metrics, below.
                if batch + 1 < self._per_epoch and self._consensus.is_due(self._step):
                    self._save_or_stop(self._agree())
            decision = self._agree(save=True)
            self._finish_epoch(epoch, self._step - first_step, time.monotonic() - started, log)
            self._save_or_stop(decision)

    def _agree(self, save: bool = False) -> Decision:
        """Return the ranks' common decision; `save` forces a checkpoint.

        Raises:
            DivergedError: numbers of a rank are not finite; raised on all ranks.
        """
        finite = self._recent.are_finite() and all_finite(self._engine.module.parameters())
        decision = self._consensus.reach(self._step, save, diverged=not finite)
        if decision.diverged:
            rate = self._engine.optimizer.param_groups[0]["lr"]
            raise DivergedError(
                f"{self._folder.path.name} has diverged: at step {self._step} and a learning rate "
                f"of {rate:g} its loss, gradients or weights are not finite (last finite loss: "
                f"{self._recent.last_loss:.4g}). No later checkpoint is kept: "
                f"{DivergedError.REMEDY}"
            )
        return decision

    def _save_or_stop(self, decision: Decision) -> None:
        """Save a checkpoint or stop, according to the ranks' decision.

        Raises:
            Preempted: a rank received a signal before the last step.
        """
        if decision.save:
            self._save()
        if decision.stop and self._step < self._config.epochs * self._per_epoch:
            raise Preempted(f"stopped after step {self._step}", decision.requeue)

    def _train_step(self) -> None:
        examples = self._batches.at(self._step)
        begin = partial(self._engine.module.begin_step, self._seed, self._step, self._rank)
        # A function of the step only, so a resumed run needs no scheduler state.
        rate = learning_rate(self._config, self._step, self._config.epochs * self._per_epoch)
        loss, norm = take_step(self._engine, examples, rate, self._config.gradient_clipping, begin)
        self._loss_sum += loss
        self._recent.add(loss, norm)
        self._step += 1

    def _finish_epoch(self, epoch: int, steps: int, seconds: float, log: MetricsLog | None) -> None:
        found = self._holdout.measure(self._engine)
        validation = self._validation
        if validation is not None and validation.is_due(epoch):
            found |= validation.measure(self._engine)
        train_loss = self._loss_sum / (self._per_epoch * self._world_size)
        dist.all_reduce(train_loss)
        tokens = steps * self._config.batch_size * self._tokens
        self._loss_sum.zero_()
        metrics = {
            "epoch": epoch + 1,
            "step": self._step,
            "train_loss": train_loss.item(),
            **found,
            "tokens_per_second": tokens / max(seconds, 1e-9),
            "seconds": seconds,
        }
        self._best.compare(metrics, self._engine.module.flat)
        if log is not None:
            log.write(metrics)

    def _save(self) -> None:
        # Each rank's sum differs; all are restored from their mean, whose total is the same.
        mean = self._loss_sum.clone()
        dist.all_reduce(mean)
        mean /= self._world_size
        best = self._best.found
        self._checkpoints.save(
            self._engine,
            {
                "step": self._step,
                "loss_sum": mean.item(),
                "best": None if best is None else asdict(best),
            },
        )
