"""`make bench`: speeds as JSON lines, each with its ratio to a reference run beside it.

A measurement and its reference alternate (A B A B ...), so that both see the same machine; seconds
are medians.  Ratios above 1 mean that this code is faster than the reference.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sad_hpc.distill import make_block
from sad_hpc.experiment_file import load_experiment
from sad_hpc.tasks import make_family
from sad_hpc.tasks.darkroom import Darkroom

ROOT = Path(__file__).parent.parent
REPEATS = 5


def seconds_of(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(name: str, unit: str, ours: tuple[Callable[[], None], int],
            reference: tuple[Callable[[], None], int]) -> None:  # fmt: skip
    """Prints the rate of `ours` (work, units in it) and its ratio to that of `reference`."""
    pairs = [(seconds_of(ours[0]), seconds_of(reference[0])) for _ in range(REPEATS)]
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    rate, reference_rate = ours[1] / mine, reference[1] / theirs
    line = {
        "name": name,
        "units": ours[1],
        "unit": unit,
        "seconds": round(mine, 4),
        "rate": round(rate),
        "reference_rate": round(reference_rate),
        "ratio": round(rate / reference_rate, 2),
    }
    print(json.dumps(line), flush=True)


def plain_collection(family: Darkroom, trust_horizon: int, tasks: int) -> None:
    """Algorithms 1 and 5 as a loop over environments in Python, as public code has it."""
    generator = np.random.default_rng(0)
    goals = family.parameters("train", 0, tasks)
    horizon = family.config.horizon
    for goal in goals:
        for _ in range(horizon):
            state = family.coordinates[generator.integers(family.n_states)]
            family.step(state, generator.integers(5), goal)
        fewest = trust_horizon + 1
        while fewest > trust_horizon:
            query = family.coordinates[generator.integers(family.n_states)]
            for action in range(5):
                state, chosen = query, action
                for step in range(1, trust_horizon + 1):
                    state, reward = family.step(state, np.intp(chosen), goal)
                    if reward:
                        fewest = min(fewest, step)
                        break
                    chosen = generator.integers(5)


def bench_collection() -> None:
    experiment = load_experiment(ROOT / "configs/darkroom.yaml")
    family = make_family(experiment.task)
    assert isinstance(family, Darkroom) and family.sparse_reward

    def kernels() -> None:
        for block in range(9):
            make_block(family, experiment.data, "train", block)

    kernels()  # loads the compiled code
    compare(
        "collect darkroom: kernels against a Python loop over environments",
        "tasks",
        (kernels, 9 * experiment.data.block_tasks),
        (lambda: plain_collection(family, experiment.data.trust_horizon, 20), 20),
    )


def bench_training() -> None:
    import torch

    from sad_hpc.model import Context, Inputs, Transformer
    from sad_hpc.pretrain import action_loss

    torch.set_num_threads(1)
    experiment = load_experiment(ROOT / "configs/darkroom.yaml")
    inputs = Inputs.of_family(make_family(experiment.task))

    def step_of(attention_dropout: float) -> Callable[[], None]:
        model_config = experiment.model.model_copy(
            update={"dropout": 0.1, "attention_dropout": attention_dropout}
        )
        model = Transformer(model_config, inputs)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        shape = (experiment.pretrain.batch_size, inputs.horizon)
        context = Context(
            torch.randint(7, (*shape, 2)).to(torch.uint8),
            torch.randint(5, shape).to(torch.uint8),
            torch.randint(2, shape).to(torch.uint8),
            torch.randint(7, (*shape, 2)).to(torch.uint8),
        )
        query = torch.randint(7, (shape[0], 2)).to(torch.uint8)
        labels = torch.randint(5, shape[:1])

        def train() -> None:
            for _ in range(10):
                loss = action_loss(model(query, context), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        train()
        return train

    tokens = 10 * experiment.pretrain.batch_size * (inputs.horizon + 1)
    compare(
        "train darkroom (dropout 0.1, one core): fused attention against attention dropout",
        "tokens",
        (step_of(0.0), tokens),
        (step_of(0.1), tokens),
    )


if __name__ == "__main__":
    bench_collection()
    bench_training()
