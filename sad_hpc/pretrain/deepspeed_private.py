"""Private parts of DeepSpeed that pretraining uses; tests/test_private_apis.py checks them.

DeepSpeed takes seconds to import, so the functions import it.
"""

from pickle import UnpicklingError
from typing import Any

TESTED = "0.19"
"""The version of DeepSpeed against which these parts were tested."""


def disable_compiled_ops() -> None:
    """Keep DeepSpeed from compiling its shared-memory all-reduce.

    Compiling takes 45 s and a C++ compiler, and gloo is as fast for models this small.  The whole
    list of operations is replaced: making it would compile probes that write linker errors into
    the logs.
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}


def disable_allreduce(engine: Any) -> None:
    """Leave out the all-reduce of gradients, for an engine of one rank."""
    engine.enable_backward_allreduce = False


def checkpoint_types() -> list[Any]:
    """Return the classes in DeepSpeed's checkpoints, for `torch.serialization.safe_globals`."""
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    def member(kind: Any, name: str) -> ZeroStageEnum:
        if kind is not ZeroStageEnum:
            raise UnpicklingError(f"{name} of {kind}")
        return ZeroStageEnum[name]

    # Some versions of Python pickle a member of an enumeration as getattr(class, name).
    return [LossScaler, ZeroStageEnum, fragment_address, (member, "builtins.getattr")]
