"""Private parts of other packages: a changed one fails here with its name."""

import importlib.util
import inspect
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch.distributed as dist
from submitit import LocalExecutor, SlurmExecutor

from sad_hpc.parallel import connections, submitit_private
from sad_hpc.pretrain import deepspeed_private
from tests.patience import HUNG

MODULES = {
    "torch": connections,
    "deepspeed": deepspeed_private,
    "submitit": submitit_private,
}


def changed(package: str, part: str) -> str:
    """Message of a failing test."""
    module = MODULES[package]
    return (
        f"{package} {version(package)} has changed {part}, which {module.__name__} uses (tested "
        f"with {module.TESTED}): adapt that module, or pin {package} in constraints.txt"
    )


@pytest.mark.parametrize("package", MODULES)
def test_the_tested_version_is_the_pinned_one(package: str):
    pins = Path(__file__).parent.parent.joinpath("constraints.txt").read_text()
    found = re.search(rf"(?m)^{package}==([\d.]+)", pins)
    assert found is not None and found[1].startswith(MODULES[package].TESTED + ".")


TIMEOUT = """
import sys
from datetime import timedelta
import torch
from torch import distributed as dist
from sad_hpc.parallel.connections import set_group_timeout

store = dist.FileStore(sys.argv[1], 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
set_group_timeout(timedelta(days=1))
group = dist.distributed_c10d._get_default_group()
print(group._get_backend(torch.device("cpu")).options._timeout == timedelta(days=1))
"""


def test_torch_sets_a_groups_timeout(tmp_path: Path):
    """In a process of its own: another test of this one may have a group already."""
    assert hasattr(dist.distributed_c10d, "_set_pg_timeout"), changed("torch", "_set_pg_timeout")
    command = [sys.executable, "-c", TIMEOUT, str(tmp_path / "store")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=HUNG)
    assert found.stdout == "True\n", changed("torch", "_set_pg_timeout") + found.stderr


def test_deepspeed_has_its_table_of_compiled_operations():
    import deepspeed

    assert hasattr(deepspeed.ops, "__compatible_ops__"), changed("deepspeed", "__compatible_ops__")


def test_deepspeeds_engine_can_leave_out_the_all_reduce():
    from deepspeed.runtime.engine import DeepSpeedEngine

    source = inspect.getsource(DeepSpeedEngine)
    for part in ("enable_backward_allreduce", "def get_global_grad_norm", "def gradient_clipping"):
        assert part in source, changed("deepspeed", part)


def test_deepspeeds_checkpoints_hold_known_types():
    try:
        types = deepspeed_private.checkpoint_types()
    except ImportError as error:
        pytest.fail(changed("deepspeed", f"the types in checkpoints ({error})"))
    assert len(types) == 4


OVERRIDDEN = {
    SlurmExecutor: (
        "_internal_process_submissions",
        "_make_submission_file_text",
        "_num_tasks",
        "_submitit_command_str",
    ),
    LocalExecutor: ("_submit_command",),
}
"""Private methods and properties of submitit's executors that ours call or override."""


def test_submitit_has_the_methods_that_executors_override():
    for executor, names in OVERRIDDEN.items():
        for name in names:
            assert hasattr(executor, name), changed("submitit", f"{executor.__name__}.{name}")
    assert importlib.util.find_spec(submitit_private.PROGRAM), changed("submitit", "its program")
    assert isinstance(submitit_private.LOCAL_REQUEUE_RETURN_CODE, int)


@pytest.mark.parametrize("package", MODULES)
def test_private_parts_are_used_in_one_module(package: str):
    """Elsewhere only what the package documents is imported."""
    private = {
        "torch": r"distributed_c10d|\btorch\._(?!_version__)",
        "deepspeed": r"deepspeed\.(ops|runtime|utils)|enable_backward_allreduce",
        "submitit": r"from submitit\.|submitit\.core\._submit",
    }[package]
    root = Path(connections.__file__).parents[1]
    own = Path(MODULES[package].__file__)
    users = [p for p in root.rglob("*.py") if p != own and re.search(private, p.read_text())]
    assert not users
