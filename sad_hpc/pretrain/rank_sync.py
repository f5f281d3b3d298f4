"""Decisions of all data-parallel ranks: when to save a checkpoint, and whether to stop.

A signal, a clock or a NaN affects one rank; all ranks must save or stop after the same step.
"""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from sad_hpc.parallel import preemption

MOST_STEPS, MOST_SECONDS = 8, 2.0
"""Largest number of steps, and about the longest time, between two all-reduces of the ranks."""


@dataclass(frozen=True)
class Decision:
    """A decision that is the same on every rank."""

    save: bool
    stop: bool
    requeue: bool
    """True if Slurm must requeue the job after it stops."""
    diverged: bool
    """True if a rank has numbers that are not finite; no checkpoint is saved then."""


class RankConsensus:
    """One rank's part in the common decisions.

    Args:
        device: device of the ranks' messages.
        is_first: whether this rank's clock decides when a checkpoint is due.
        checkpoint_minutes: time between checkpoints.
    """

    def __init__(self, device: torch.device, is_first: bool, checkpoint_minutes: float) -> None:
        self._device, self._is_first = device, is_first
        self._checkpoint_seconds = 60 * checkpoint_minutes
        self.start(0)

    def start(self, step: int) -> None:
        """Start counting at the step from which training continues."""
        self._step, self._next_step = step, step + 1
        self._time = self._saved = time.monotonic()

    def is_due(self, step: int) -> bool:
        """Return whether the ranks decide after this step; all ranks return the same."""
        return step >= self._next_step

    def reach(self, step: int, save: bool = False, diverged: bool = False) -> Decision:
        """Return the ranks' decision after a step; a collective call.

        Args:
            step: current step, the same on all ranks.
            save: whether to save a checkpoint in any case.
            diverged: whether this rank's numbers are not finite.
        """
        now = time.monotonic()
        late = self._is_first and now - self._saved > self._checkpoint_seconds
        seconds_a_step = (now - self._time) / max(1, step - self._step)
        mine = (save or late, preemption.requested(), preemption.requeue_requested(), diverged)
        greatest = torch.tensor([*mine, seconds_a_step], dtype=torch.float64, device=self._device)
        dist.all_reduce(greatest, op=dist.ReduceOp.MAX)
        *flags, seconds_a_step = greatest.tolist()
        save, stop, requeue, diverged = map(bool, flags)
        affordable = int(MOST_SECONDS / max(seconds_a_step, 1e-9))
        self._step, self._next_step = step, step + max(1, min(MOST_STEPS, affordable))
        self._time = now
        if save or stop:
            self._saved = now
        return Decision((save or stop) and not diverged, stop, requeue, diverged)
