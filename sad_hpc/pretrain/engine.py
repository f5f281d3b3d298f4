"""The DeepSpeed engine and its process group: gloo on CPUs, nccl on GPUs."""

import logging
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from sad_hpc.errors import UserError
from sad_hpc.experiment.sections import PretrainConfig
from sad_hpc.parallel.connections import MEETING, meet, probe_connections, set_group_timeout
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.parallel.ranks import Process, was_given_gpus
from sad_hpc.parallel.threads import limit_threads
from sad_hpc.pretrain.clipping import deepspeed_limit
from sad_hpc.pretrain.deepspeed_private import disable_allreduce, disable_compiled_ops
from sad_hpc.pretrain.learner import Learner
from sad_hpc.pretrain.normuon import NorMuon

T = TypeVar("T")

PATIENCE = timedelta(days=1)
"""Longest time that ranks wait for another one, which can wait for a disk or an earlier start.
Closed connections and Slurm reveal a dead rank immediately; probes find a disconnected rank."""


def deepspeed_config(config: PretrainConfig, world_size: int, on_gpu: bool) -> dict[str, Any]:
    """Return DeepSpeed's config, made from the experiment's config alone."""
    bf16 = config.uses_bf16(on_gpu)
    clipping = deepspeed_limit(config.gradient_clipping, config.zero_stage, bf16)
    return {
        "train_batch_size": config.batch_size,
        "train_micro_batch_size_per_gpu": config.batch_size // (world_size * config.accumulate),
        "gradient_accumulation_steps": config.accumulate,
        "gradient_clipping": clipping,
        "zero_optimization": {"stage": config.zero_stage},
        "bf16": {"enabled": bf16},
        "steps_per_print": 10**12,
    }


def join_process_group(process: Process) -> None:
    """Connect the ranks with nccl and one GPU a rank if there are GPUs, or else with gloo.

    Raises:
        UserError: torch cannot use the job's GPUs, there are fewer GPUs than ranks, or the ranks
            cannot connect.
        Preempted: a signal arrived before the ranks had connected.
    """
    on_gpu = torch.cuda.is_available()
    if was_given_gpus() and not on_gpu:
        raise UserError(
            f"this job has GPUs, but torch finds none on {socket.gethostname()}: check its driver "
            "and torch's build, or train on CPUs with cluster.pretrain.gpus=0"
        )
    if not on_gpu:
        os.environ["DS_ACCELERATOR"] = "cpu"
        limit_threads(len(os.sched_getaffinity(0)) // process.world_size)
    import deepspeed  # takes seconds

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    disable_compiled_ops()
    if on_gpu:
        if process.local_rank >= torch.cuda.device_count():
            raise UserError(
                f"local rank {process.local_rank} has no GPU: {torch.cuda.device_count()} are "
                "visible; start one rank for each GPU, or hide GPUs with CUDA_VISIBLE_DEVICES="
            )
        torch.cuda.set_device(process.local_rank)
    if not dist.is_initialized():
        _make_process_group("nccl" if on_gpu else "gloo", process)
        # It uses the existing group.
        deepspeed.init_distributed(auto_mpi_discovery=False, verbose=False)


def _make_process_group(backend: str, process: Process) -> None:
    store = meet(process)
    try:
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("group", store),
            rank=process.rank,
            world_size=process.world_size,
            timeout=MEETING,
        )
    except (dist.DistError, RuntimeError) as error:
        raise UserError(
            f"the ranks cannot connect to each other ({' '.join(str(error).split())}): set "
            "GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME to the network to use"
        ) from error
    probe_connections()
    set_group_timeout(PATIENCE)


def on_first_rank(work: Callable[[], T]) -> T:
    """Run `work` on rank 0, and return its result or raise its error on every rank.

    A shared disk can show nodes different files for a while, so rank 0 decides for all.
    """
    answer: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            answer[0] = work()
        except Exception as error:
            # Broadcast only errors that can be pickled.
            answer[1] = RuntimeError(repr(error))
            if isinstance(error, UserError | Preempted):
                answer[1] = error
            elif isinstance(error, OSError) and error.strerror:
                answer[1] = OSError(error.errno, error.strerror, error.filename)
    dist.broadcast_object_list(answer, src=0)
    if answer[1] is not None:
        raise answer[1]
    return answer[0]


def make_engine(learner: Learner, config: PretrainConfig, process: Process) -> Any:
    """Make a DeepSpeed engine on this rank's device."""
    import deepspeed

    on_gpu = torch.cuda.is_available()
    if on_gpu:  # DeepSpeed moves the learner later, but the optimizer's places must be there now
        learner.cuda()
    optimizer = make_optimizer(learner, config)
    engine, *_ = deepspeed.initialize(
        model=learner,
        optimizer=optimizer,
        config=deepspeed_config(config, process.world_size, on_gpu),
    )
    probe_connections()  # also for the group that DeepSpeed has made
    if config.zero_stage == 0 and process.world_size == 1:
        disable_allreduce(engine)  # with one rank, gloo's thread would only cost time
    return engine


def make_optimizer(learner: Learner, config: PretrainConfig) -> torch.optim.AdamW:
    """Return the optimizer of a learner's flat parameter."""
    rate, decay = config.learning_rate, config.weight_decay
    betas = (config.betas[0], config.betas[1])
    if config.optimizer == "adamw":
        return torch.optim.AdamW([learner.flat], rate, betas, weight_decay=decay, fused=True)
    return NorMuon(learner.flat, learner.shapes, rate, config.matrix_rate, betas, decay)


def precision_of(engine: Any) -> str:
    """Return the precision of an engine: bf16 or fp32."""
    return "bf16" if engine.bfloat16_enabled() else "fp32"
