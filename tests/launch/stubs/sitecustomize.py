"""Stand-ins for the stages, in every Python process that finds this file on its path.

Each notes that it ran in <run>/calls.txt and completes its folder.  STUB_FAILS names the folder, or
the beginning of its name, of a step that shall fail.  STUB_KILLED is the rank of a step of several
that the kernel kills, while the others wait for an hour.
"""

import os
import signal
import sys
import time
import types
from pathlib import Path


def _work(run, folder, line, rank=0):
    from sad_hpc.errors import UserError

    killed = os.environ.get("STUB_KILLED")
    if killed is not None and folder.stage in ("collect", "pretrain"):
        if rank == int(killed):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3600)
    if f"{folder.stage}/{folder.path.name}".startswith(os.environ.get("STUB_FAILS", "none")):
        raise UserError("told to fail")
    if rank == 0:
        folder.prepare({})
        with (run.path / "calls.txt").open("a") as calls:
            calls.write(line + "\n")
        folder.complete()


def collect(run):
    from sad_hpc.parallel.ranks import world

    communicator = world()
    threads = os.environ["OMP_NUM_THREADS"]
    line = f"collect ranks={communicator.Get_size()} threads={threads}"
    _work(run, run.data(), line, communicator.Get_rank())


def pretrain(run, method, seed):
    from sad_hpc.parallel.ranks import torch_process

    process = torch_process()
    line = f"pretrain {method} {seed} ranks={process.world_size}"
    _work(run, run.checkpoint(method, seed), line, process.rank)


def evaluate(run, method, seed):
    _work(run, run.evaluation(method, seed), f"evaluate {method} {seed}")


def aggregate(run, results: Path, replace: bool = False):
    from sad_hpc.storage.json_files import write_json

    folders = [run.evaluation(*element) for element in run.experiment.elements]
    tables = {
        "signature": run.experiment.aggregate_signature(),
        "stages": {each.key: each.done for each in folders},
    }
    write_json(results / run.experiment.name / "provenance.json", tables)
    _work(run, run.aggregate(), f"aggregate {results.name}")


for _name, _stage in {
    "collect.stage": collect,
    "pretrain.stage": pretrain,
    "evaluate.stage": evaluate,
    "aggregate.stage": aggregate,
}.items():
    _module = types.ModuleType(f"sad_hpc.{_name}")
    setattr(_module, _stage.__name__, _stage)
    sys.modules[_module.__name__] = _module
