"""Pretraining on one core: by the kernel against torch, matrix products and public code."""

import os
from pathlib import Path

import torch
from effects import bench_engine_effect, bench_image_effect
from measure import Work, compare
from plain_loop import DROPOUT, PlainLoop
from steps import BATCH, Steps, random_columns
from training_ranks import bench_packed_trainings, bench_training_ranks

from sad_hpc.experiment.load import load_experiment
from sad_hpc.model.fused.kernel import compile_kernel
from sad_hpc.parallel.ranks import torch_process
from sad_hpc.pretrain.engine import join_process_group
from sad_hpc.tasks.base import make_family

PAPER = Path(__file__).parent.parent / "configs/paper"
SIDE = 1024
"""Side of the square matrices whose product measures the speed of the core."""
PRODUCTS = 20
"""Products in a turn."""


def bench_training() -> None:
    """Measure two cores against one, then the other trainings on one core."""
    compile_kernel()  # before two processes do so
    # First, because the variables of a process group are inherited by later processes.
    bench_training_ranks()
    bench_packed_trainings()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    join_process_group(torch_process())
    for name, count, public_target in (
        ("darkroom", 12, 1.6),
        ("darkroom_large", 6, None),
        ("gaussian_bandit", 2, 4.0),
    ):
        steps = paper_steps(name, count)
        against_torch(steps, 4.0)
        against_products(steps)
        if public_target is not None:
            against_public_code(steps, public_target)
    bench_engine_effect(paper_steps("darkroom", 12))
    rooms = paper_steps("miniworld", 2)
    against_torch(rooms, 1.5)
    bench_image_effect(rooms)


def paper_steps(name: str, count: int) -> Steps:
    """An epoch of `count` steps on a family of the paper's sizes."""
    family = make_family(load_experiment(PAPER / f"{name}.yaml").task)
    return Steps(family, random_columns(family, count * BATCH))


def against_torch(steps: Steps, target: float) -> None:
    """Steps by the kernel against those of `pretrain.kernel: torch`, both under DeepSpeed."""
    compare(
        f"training step {title(steps)}",
        "steps",
        Work(steps.by_engine(), steps.count),
        Work(steps.by_engine("torch"), steps.count),
        "by torch",
        target,
    )


def against_products(steps: Steps) -> None:
    """The operations that steps cannot do without, against those of large matrix products."""
    a, b = torch.randn(2, SIDE, SIDE)
    product = torch.empty(SIDE, SIDE)

    def multiply() -> None:
        for _ in range(PRODUCTS):
            torch.mm(a, b, out=product)

    multiply()  # warm
    compare(
        f"training step {title(steps)}, arithmetic",
        "GFLOP",
        Work(steps.by_engine(), steps.operations / 1e9),
        Work(multiply, PRODUCTS * 2 * SIDE**3 / 1e9),
        f"torch's sgemm of {SIDE} x {SIDE}",
        0.5,
    )


def against_public_code(steps: Steps, target: float) -> None:
    """Answers, of the same batches, against a standard loop; one with GPT-2's own dropout."""
    ours = Work(steps.by_engine(), steps.answers)
    for attention_dropout, aim in ((DROPOUT, target), (0.0, None)):
        compare(
            f"pretrain {title(steps)}, one core",
            "answers",
            ours,
            Work(PlainLoop(steps.family, steps.columns, attention_dropout).run, steps.answers),
            f"Hugging Face's GPT2Model in a standard loop, attention dropout {attention_dropout:g}",
            aim,
        )


def title(steps: Steps) -> str:
    return f"{steps.family.name}, T = {steps.family.config.horizon}"


if __name__ == "__main__":
    bench_training()
