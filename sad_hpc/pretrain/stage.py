"""Pretraining (Algorithm 4) of one (method, seed) by DeepSpeed, data-parallel and resumable."""

from contextlib import ExitStack

import torch
import torch.distributed as dist

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.sections import PretrainConfig
from sad_hpc.model.architecture import make_model
from sad_hpc.model.context import Inputs
from sad_hpc.model.fused.kernel import compile_kernel
from sad_hpc.parallel.connections import lost_ranks_named
from sad_hpc.parallel.ranks import Process, torch_process
from sad_hpc.pretrain.batches import make_batches
from sad_hpc.pretrain.engine import join_process_group, make_engine, on_first_rank
from sad_hpc.pretrain.learner import Learner, action_loss
from sad_hpc.pretrain.trainer import Trainer
from sad_hpc.pretrain.validation import TASKS, MakeScore
from sad_hpc.storage.progress import say_complete
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family


def pretrain(run: Run, method: str, seed: int, make_score: MakeScore | None = None) -> None:
    """Train the model of one (method, seed), or resume its training; every rank calls this.

    Args:
        run: run of the training.
        method: method of the model.
        seed: seed of the training.
        make_score: function that makes the measure of weights on validation tasks; needed if
            there are such tasks (`launch.graph.pretrain_with_score` passes it).

    Raises:
        DatasetError: the dataset is missing, incomplete, damaged, or of another config.
        CheckpointError: the folder has a checkpoint of another model.
        ConfigError: the global batch does not divide over the ranks, or the experiment uses models
            of another one.
        DivergedError: losses, gradients or weights are not finite.
        UserError: another rank has died or cannot be reached.
        Preempted: a signal stopped the training; a checkpoint is saved.
    """
    if run.experiment.pretrained is not None:
        raise ConfigError(
            f"{run.experiment.name} does not train models: it evaluates those of "
            f"{run.experiment.source.name}. Train that experiment's config"
        )
    folder = run.checkpoint(method, seed)
    process = torch_process()
    run.experiment.pretrain.check_ranks(process.world_size)
    join_process_group(process)

    with ExitStack() as stack, lost_ranks_named():

        def begin() -> bool:
            stack.enter_context(run.writing(folder, run.experiment.pretrain_config(method, seed)))
            return folder.done is None

        if on_first_rank(begin):
            _trainer(run, method, seed, process, make_score).train()
        elif process.is_first:
            say_complete(folder)


def _trainer(
    run: Run, method: str, seed: int, process: Process, make_score: MakeScore | None
) -> Trainer:
    experiment = run.experiment
    config = experiment.optimization(method)
    torch.manual_seed(seed)
    inputs = Inputs.of_family(make_family(experiment.task), experiment.context_length(method))
    loss = experiment.extensions.get("pretrain.loss", action_loss)
    learner = Learner(make_model(experiment.model, inputs), loss)
    engine = make_engine(learner, config, process)
    _choose_way(learner, config)
    batches, examples = make_batches(run, method, seed, config, engine.device)
    signature = experiment.pretrain_signature(method, seed)
    score = None
    if config.validation_tasks:
        assert make_score is not None, "validation tasks need a function that measures weights"
        score = make_score(run, method, seed, *examples.validation_contexts(TASKS))
    return Trainer(
        config, engine, batches, examples, run.checkpoint(method, seed), signature, seed, score
    )


def _choose_way(learner: Learner, config: PretrainConfig) -> None:
    """Choose CUDA graphs on a GPU or the compiled kernel on a CPU, or else plain torch; log it.

    The first rank compiles the kernel, and the others load it from the cache.
    """
    on_gpu = learner.flat.device.type == "cuda"
    if config.checkpoint_activations:
        learner.checkpoint_activations()
    if config.kernel == "torch":
        reason: str | None = "pretrain.kernel is torch"
    elif config.checkpoint_activations and on_gpu:
        reason = "pretrain.checkpoint_activations"
    elif config.accumulate > 1 and on_gpu:  # a graph's gradient is overwritten by its next run
        reason = "pretrain.accumulate"
    else:
        reason = learner.use_graphs() if on_gpu else learner.use_kernel()
    if reason is None and not on_gpu:
        on_first_rank(compile_kernel)
    if dist.get_rank() == 0:
        fast = "CUDA graphs" if on_gpu else "the compiled kernel"
        way = fast if reason is None else f"torch ({reason})"
        print(f"training steps by {way}", flush=True)
