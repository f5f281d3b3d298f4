"""Probes that the ranks of slurm/check.sh run, with one rank on each of two nodes.

`python -m sad_hpc.launch.cluster_probes NAME FOLDER` runs one.  Its last line of output is the
finding.  A failed probe raises, and the job's script prints the fix.
"""

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sad_hpc.errors import ERROR_PREFIX, UserError
from sad_hpc.parallel.process import end_before_teardown
from sad_hpc.parallel.ranks import SingleProcess, torch_process, world
from sad_hpc.storage.files import has_locks
from sad_hpc.storage.lock import held, is_held

SEEN_SECONDS = 60.0
"""Longest time until a file is visible on another node."""


def mpi(folder: Path) -> None:
    """Check that every rank sees all others through MPI."""
    communicator = world()
    if isinstance(communicator, SingleProcess):
        raise UserError("srun started each rank as a separate MPI world")
    nodes = communicator.gather(_node())
    if communicator.Get_rank() == 0:
        print(f"{communicator.Get_size()} ranks on {', '.join(sorted(nodes))} see each other")


def deepspeed(folder: Path) -> None:
    """Check that a step of data-parallel training gives all ranks equal weights."""
    process = torch_process()
    from sad_hpc.pretrain.engine import join_process_group

    join_process_group(process)
    import deepspeed as library
    import torch
    import torch.distributed as dist

    torch.manual_seed(process.rank)
    model = torch.nn.Linear(8, 1)
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    engine, *_ = library.initialize(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config
    )
    loss = engine(torch.randn(1, 8, device=engine.device)).square().mean()
    engine.backward(loss)
    engine.step()
    weights = [torch.zeros_like(model.weight) for _ in range(process.world_size)]
    dist.all_gather(weights, model.weight.detach())
    if not all(torch.equal(weights[0], other) for other in weights):
        raise UserError("after a step of data-parallel training the ranks' weights differ")
    if process.is_first:
        print(f"a step of {process.world_size} ranks over {dist.get_backend()}: equal weights")


def files(folder: Path) -> None:
    """Check that rank 1 can read a file of rank 0 and cannot lock a folder that rank 0 holds.

    The ranks communicate only through files, since this probes the file system.
    """
    import h5py
    import numpy as np

    data = np.arange(100_000)
    path, written, tried = folder / "check.h5", folder / "written", folder / "tried"
    if os.environ["SLURM_PROCID"] == "0":
        with held(folder / "held"):
            with h5py.File(path, "w") as file:
                file["data"] = data
            written.touch()
            _wait_for(tried)
        return
    began = time.monotonic()
    _wait_for(written)
    seconds = time.monotonic() - began
    with h5py.File(path) as file:
        same = np.array_equal(file["data"][()], data)
    refused = is_held(folder / "held")
    tried.touch()
    if not same:
        raise UserError(f"{path} has other content on {_node()} than on the node that wrote it")
    if not refused:
        raise UserError(f"a lock that one node holds does not keep another out of {folder}")
    how = "locks" if has_locks(folder) else "lock files (no flock)"
    print(f"HDF5 files reach the other node in {seconds:.1f} s; {how} keep a second writer out")


def graphics(folder: Path) -> None:
    """Check that each node can render."""
    from sad_hpc.tasks.miniworld.gl import graphics as context

    with context():
        import pyglet

        pyglet.window.Window(visible=False)
        renderer = pyglet.gl.gl_info.get_renderer()
    print(f"{renderer} on {_node()}")


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + SEEN_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise UserError(
                f"files that another node writes into {path.parent} are not visible on {_node()} "
                f"after {SEEN_SECONDS:.0f} s"
            )
        with suppress(OSError):
            os.listdir(path.parent)  # NFS asks its server again
        time.sleep(0.05)


def _node() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


PROBES: dict[str, Callable[[Path], None]] = {
    "mpi": mpi,
    "deepspeed": deepspeed,
    "files": files,
    "graphics": graphics,
}


def main(name: str, folder: Path) -> int:
    """Run a probe; return 1 and print the reason for the job's script if it fails."""
    try:
        PROBES[name](folder)
    except UserError as error:
        print(f"{ERROR_PREFIX}{error}", file=sys.stderr)
    except Exception as error:  # libraries raise many types
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"{ERROR_PREFIX}{reason} (on {_node()})", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    code = main(sys.argv[1], Path(sys.argv[2]))
    end_before_teardown(code)
    sys.exit(code)
