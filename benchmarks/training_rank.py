"""A rank that trains for an epoch whenever rank 0 reads a line; it answers when all are done.

Between epochs the ranks wait without using their cores, so that two trainings of different numbers
of ranks can take turns: `mpiexec -n 2 python training_rank.py darkroom 12`, with a config of
configs/paper and an epoch's steps.  Each answer is the peak memory so far, in bytes.
"""

import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from steps import BATCH, Steps, random_columns

from sad_hpc.collect.throughput import peak_memory
from sad_hpc.experiment.load import load_experiment
from sad_hpc.parallel.ranks import torch_process
from sad_hpc.pretrain.engine import join_process_group, on_first_rank
from sad_hpc.tasks.base import make_family

PAPER = Path(__file__).parent.parent / "configs/paper"


def main(name: str, n_steps: int) -> None:
    """Trains until the input ends."""
    process = torch_process()
    join_process_group(process)
    torch.manual_seed(0)
    family = make_family(load_experiment(PAPER / f"{name}.yaml").task)
    steps = Steps(family, random_columns(family, n_steps * BATCH))
    run = steps.by_engine()
    dist.barrier()
    while on_first_rank(partial(_next_line, peak_memory())):
        run()
        dist.barrier()


def _next_line(answer: int) -> bool:
    print(answer, flush=True)
    return bool(sys.stdin.readline())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
