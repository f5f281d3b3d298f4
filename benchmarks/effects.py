"""Effects of single optimizations: the code against itself without one of them, on one core."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
from measure import Work, compare
from steps import Steps

from sad_hpc.distill import contexts, rollout_labels
from sad_hpc.distill.contexts import sample_episodes, sample_transitions
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import Darkroom, DarkroomConfig

TASKS = 8192
ROOM = DarkroomConfig()


def bench_kernel_effects() -> None:
    """Several draws out of one random word."""
    family = make_family(ROOM)
    assert isinstance(family, Darkroom)
    parameters, policy = family.distinct_tasks("train"), policy_table("uniform", family.n_actions)
    mdps, numbers = family.mdps(parameters), np.arange(TASKS, dtype=np.int64) % len(parameters)
    rule = LabelRule(7, 1, 0.9, True, 1e-6, False)

    def labels() -> None:
        distill_labels(mdps, numbers, policy, rule, stream(0, 0, 0, "sad"))

    def walks() -> None:
        sample_transitions(family, mdps, numbers, policy, stream(0, 0, 0, "transitions"))
        sample_episodes(family, mdps, numbers, policy, stream(0, 0, 0, "episodes"))

    _effect(
        "contexts: several draws out of one random word",
        walks,
        _without_digits(walks),
        "one draw a word",
    )
    _effect("labels: several draws out of one random word", labels, _without_digits(labels),
            "one draw a word")  # fmt: skip


@contextmanager
def one_draw_a_word() -> Iterator[None]:
    """A random word for every small number."""
    with (
        mock.patch.object(rollout_labels, "digits_per_word", lambda _: 1),
        mock.patch.object(contexts, "digits_per_word", lambda _: 1),
        mock.patch.object(contexts, "_pairs_per_word", lambda *_: 1),
    ):
        yield


def _without_digits(run: Callable[[], None]) -> Callable[[], None]:
    def slower() -> None:
        with one_draw_a_word():
            run()

    return slower


def bench_image_effect(steps: Steps) -> None:
    """Images encoded a few at a time."""
    run = steps.by_engine()

    def at_once() -> None:
        with mock.patch("sad_hpc.model.image_encoder.IMAGES_AT_ONCE", steps.answers):
            run()

    title = f"pretraining, {steps.family.name}"
    _effect(f"{title}: a batch's images encoded a few at a time", run, at_once, "all at once")


def bench_engine_effect(steps: Steps) -> None:
    """DeepSpeed's own cost: the kernel's steps under it, and with torch's AdamW alone."""
    title = f"pretraining, {steps.family.name}"
    _effect(f"{title}: DeepSpeed's engine", steps.by_engine(), steps.without_engine(),
            "the kernel and AdamW alone")  # fmt: skip


def _effect(name: str, ours: Callable[[], Any], without: Callable[[], Any], how: str) -> None:
    ours(), without()  # warm
    compare(f"effect on {name}", "runs", Work(ours, 1), Work(without, 1), how)


if __name__ == "__main__":
    bench_kernel_effects()
