"""A trained model on disk: its state_dict, and the signature of its training."""

import io
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from sad_hpc.errors import CheckpointError, DivergedError
from sad_hpc.model.finite import all_finite
from sad_hpc.storage.files import checksum as file_checksum
from sad_hpc.storage.hdf5 import write_bytes

WEIGHTS = "weights.pt"


def save_weights(path: Path, weights: Mapping[str, Tensor], signature: str) -> str:
    """Write a model's weights as float32 in one step, and return the file's checksum.

    Raises:
        UserError: the disk is full, or the folder cannot be written.
    """
    state = {name: weight.detach().float().cpu() for name, weight in weights.items()}
    buffer = io.BytesIO()
    torch.save({"signature": signature, "state": state}, buffer)
    write_bytes(path, buffer.getvalue())
    return file_checksum(buffer.getvalue())


def load_weights(path: Path, model: nn.Module, signature: str, checksum: str) -> None:
    """Load the weights of the training with this signature into `model`.

    The checksum detects flipped bits, which torch does not.

    Raises:
        CheckpointError: the file is missing, damaged, or of another or a diverged training.
    """
    remedy = f"remove {path.parent} and train again"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    if file_checksum(data) != checksum:
        raise CheckpointError(f"{path} is damaged: its checksum has changed; {remedy}")
    try:
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        found, state = content["signature"], content["state"]
    except Exception as error:
        raise CheckpointError(f"{path} is damaged; {remedy}") from error
    if found != signature:
        raise CheckpointError(
            f"{path} is of another model or config ({found}, not {signature}); {remedy}"
        )
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} does not fit the model; {remedy}") from error
    if not all_finite(model.parameters()):
        raise CheckpointError(
            f"{path} has weights that are not finite, because its training diverged: remove "
            f"{path.parent}, {DivergedError.REMEDY}"
        )
