"""The threads of PyTorch in a process."""

import os

import torch


def limit_threads(threads: int) -> None:
    """Let PyTorch use `threads` threads in this process, unless OMP_NUM_THREADS is set.

    The launcher and batch scripts set OMP_NUM_THREADS.  PyTorch's default is one thread for each
    core, which wait for each other at every step: beside other work on two cores an evaluation of
    a small model took 80 times as long.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, threads))
