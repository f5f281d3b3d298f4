"""Step time and memory by the size of the model: `python benchmarks/sizes.py` writes sizes.md.

Each measurement is a process of its own on one core: two steps of SAD with one query after every
prefix, of which the second is timed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from run import made_by
from steps import random_columns

from sad_hpc.collect.throughput import peak_memory
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.sections import ModelConfig, PretrainConfig
from sad_hpc.model.architecture import make_model
from sad_hpc.model.context import Inputs
from sad_hpc.model.fused.kernel import compile_kernel
from sad_hpc.parallel.ranks import torch_process
from sad_hpc.pretrain.engine import join_process_group, make_engine
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.learner import Learner
from sad_hpc.pretrain.trainer import take_step
from sad_hpc.storage.files import atomic_path
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig

HERE = Path(__file__).parent


class Size(NamedTuple):
    """Sizes of a model."""

    embedding: int
    heads: int
    layers: int


SIZES = [
    Size(32, 3, 3),
    Size(64, 4, 4),
    Size(128, 8, 6),
    Size(256, 8, 8),
    Size(512, 8, 8),
    Size(768, 12, 12),
]
"""The paper's model to GPT-2 small."""
LENGTHS = (100, 500, 2000)
TOKENS = 8_000
"""Tokens of a step, at least; a step has one context or more."""
WAYS = {
    "kernel": {},
    "torch": {"kernel": "torch"},
    "torch, activations recomputed": {"kernel": "torch", "checkpoint_activations": True},
}
COLUMNS = ["weights", "embedding", "layers", "T", "contexts", "steps by", "tokens/s", "peak MiB"]


def main() -> None:
    """Measure every size, and write the table."""
    rows = [list(map(str, row)) for row in measured()]
    with atomic_path(HERE / "sizes.md") as temporary:
        text = made_by("python benchmarks/sizes.py", COLUMNS, rows)
        temporary.write_text(text, encoding="utf-8")


def measured() -> Iterator[list[str]]:
    """Yield the rows of the table; a way that does not support a size has none."""
    for size in SIZES:
        for horizon in LENGTHS:
            for way in WAYS:
                arguments = [*map(str, size), str(horizon), way]
                done = subprocess.run(
                    [sys.executable, __file__, *arguments],
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                if answer := done.stdout.splitlines()[-1].removeprefix("row "):
                    print(answer, flush=True)
                    yield answer.split("|")


def measure(size: Size, horizon: int, way: str) -> str:
    """Return the cells of one row, or nothing if this way does not support the size."""
    compile_kernel()
    torch.set_num_threads(1)
    join_process_group(torch_process())
    family = make_family(DarkroomConfig(horizon=horizon))
    inputs = Inputs.of_family(family)
    contexts = max(1, TOKENS // (2 * horizon + 1))
    examples = Examples(METHODS["SAD"], random_columns(family, contexts), 0, stateless=False)
    config = PretrainConfig(epochs=1, batch_size=contexts, **WAYS[way])
    settings = ModelConfig(embedding=size.embedding, heads=size.heads, layers=size.layers)
    learner = Learner(make_model(settings, inputs))
    engine = make_engine(learner, config, torch_process())
    if config.checkpoint_activations:
        learner.checkpoint_activations()
    if config.kernel == "auto" and learner.use_kernel() is not None:
        return ""
    batch = examples.batch(torch.arange(contexts), examples.draws(0, 0, contexts))
    for _ in range(2):
        start = time.perf_counter()
        take_step(engine, batch, 1e-3, 1.0)
        seconds = time.perf_counter() - start
    rate, peak = contexts * examples.tokens / seconds, peak_memory() / 2**20
    numbers = f"{learner.flat.numel():,}", size.embedding, size.layers, horizon, contexts
    return "|".join(map(str, (*numbers, way, f"{rate:,.0f}", f"{peak:,.0f}")))


if __name__ == "__main__":
    if sys.argv[1:]:
        *numbers, horizon, way = sys.argv[1:]
        print("row", measure(Size(*map(int, numbers)), int(horizon), way))
    else:
        main()
