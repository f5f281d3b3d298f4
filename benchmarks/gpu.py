"""One GPU, no Slurm, no MPI: what the optimizer's steps of the paper's whole table take on it.

    python benchmarks/gpu.py            every config of configs/paper/, as `sad-hpc pretrain` trains
    python benchmarks/gpu.py --toy      the same at toy size, on a CPU too

Prints a JSON line a config: tokens/s, how many times as many as without CUDA graphs, the share of
the device's matrix-multiply rate that the model's arithmetic reaches (MFU), and the
hours for 5 methods x 4 seeds; then their sum.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from measure import report
from steps import random_columns
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.methods import METHODS
from sad_hpc.model.context import Inputs
from sad_hpc.model.transformer import Transformer
from sad_hpc.parallel.ranks import torch_process
from sad_hpc.pretrain.engine import join_process_group, make_engine
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.learner import Learner
from sad_hpc.pretrain.trainer import take_step
from sad_hpc.tasks.base import make_family

PAPER = Path(__file__).parent.parent / "configs/paper"
TOY = ["pretrain.batch_size=4", "pretrain.precision=fp32"]
CONFIGS = ("gaussian_bandit", "darkroom", "darkroom_large", "miniworld")
"""Bernoulli bandits are played by the models of the Gaussian ones."""
MODELS = 5 * 4
"""Methods x seeds of each."""


def main() -> None:
    """Measures every config that trains, and adds up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--toy", action="store_true", help="small batches and few steps")
    toy = parser.parse_args().toy
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    join_process_group(torch_process())
    rate = multiply_rate(device, size=256 if toy else 8192)
    hours = 0.0
    for name in CONFIGS:
        experiment = load_experiment(PAPER / f"{name}.yaml", TOY if toy else [])
        hours += bench_config(experiment, device, rate, steps=2 if toy else 200)
    model = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(json.dumps({"name": "the paper's table", "device": model, "hours": round(hours, 3)}))


def bench_config(
    experiment: Experiment, device: torch.device, multiply_rate: float, steps: int
) -> float:
    """Hours that training all methods and seeds of a config takes."""
    on_gpu = device.type == "cuda"
    loops = [Loop(experiment, device, graphs) for graphs in ([False, True] if on_gpu else [False])]
    for loop in loops:
        loop.run(max(3, steps // 10))
    timed = [loop.run(steps) / steps for loop in loops]
    seconds = timed[-1]
    family, config = make_family(experiment.task), experiment.pretrain
    trained = family.n_tasks("train", experiment.data.tasks) - config.holdout_tasks
    hours = MODELS * config.epochs * (trained // config.batch_size) * seconds / 3600
    report(
        f"pretrain {experiment.name} on {device.type}",
        loops[0].tokens,
        "tokens",
        seconds,
        reference="without CUDA graphs" if on_gpu else None,
        ratio=timed[0] / seconds if on_gpu else None,
        mfu=loops[0].flops() / seconds / multiply_rate,
        hours=hours,
    )
    return hours


class Loop:
    """The steps of `sad-hpc pretrain`, on examples that are resident on the device."""

    def __init__(self, experiment: Experiment, device: torch.device, graphs: bool) -> None:
        family, config = make_family(experiment.task), experiment.pretrain
        columns = random_columns(family, 16 * config.batch_size)
        columns = {name: column.to(device) for name, column in columns.items()}
        inputs = Inputs.of_family(family)
        self._examples = Examples(METHODS["SAD"], columns, 0, inputs.stateless)
        learner = Learner(Transformer(experiment.model, inputs))
        self._limit = config.gradient_clipping
        self._engine = make_engine(learner, config, torch_process())
        if graphs and (reason := learner.use_graphs()):
            raise SystemExit(reason)
        self.tokens = config.batch_size * self._examples.tokens
        """Tokens of a step."""
        self._batches = self._examples.order(0, 0).split(config.batch_size)

    def run(self, steps: int) -> float:
        """Seconds of that many steps."""
        start = time.perf_counter()
        for step in range(steps):
            rows = self._batches[step % len(self._batches)]
            drawn = self._examples.draws(0, step, len(rows))
            batch = self._examples.batch(rows, drawn)
            loss, _ = take_step(self._engine, batch, 1e-3, self._limit)
        loss.item()  # waits for the device
        return time.perf_counter() - start

    def flops(self) -> int:
        """Floating-point operations of a step; attention is counted in full, not by half."""
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            self.run(1)
        return int(counter.get_total_flops())


def multiply_rate(device: torch.device, size: int) -> float:
    """Operations a second of a large matrix product, in the precision of training."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    a = torch.randn(size, size, device=device, dtype=dtype)
    for repeats in (3, 20):
        start = time.perf_counter()
        for _ in range(repeats):
            product = a @ a
        product[0, 0].item()
        seconds = (time.perf_counter() - start) / repeats
    return 2 * size**3 / seconds


if __name__ == "__main__":
    main()
