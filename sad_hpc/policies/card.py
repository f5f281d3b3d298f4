"""Validation of the `config.json` in a shared policy's folder."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from sad_hpc.errors import UserError
from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.storage.json_files import parse_json
from sad_hpc.tasks.environments.observations import SMALLEST_SIDE

WEIGHTS, CARD = "model.safetensors", "config.json"
"""File names in the folder."""

Positive = Annotated[int, Field(ge=1, lt=2**31)]
Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, protected_namespaces=())


Side = Annotated[int, Field(ge=SMALLEST_SIDE, lt=2**12)]


class InputsCard(_Strict):
    """`Inputs` as JSON; images beside states are not supported."""

    n_actions: Positive
    horizon: Positive
    state_center: list[FiniteFloat]
    state_scale: list[Scale]
    image_shape: tuple[Side, Side, Literal[1, 3, 4]] | None = Field(None, strict=False)
    reward_scale: Scale = 1.0
    stateless: bool = False
    has_ends: bool = False
    components: Positive | None = None

    @model_validator(mode="after")
    def _check_lengths(self) -> "InputsCard":
        if len(self.state_center) != len(self.state_scale):
            raise ValueError("state_center and state_scale differ in length")
        if bool(self.state_center) == (self.image_shape is not None):
            raise ValueError("states are numbers of state_center, or images of image_shape")
        return self

    @property
    def inputs(self) -> Inputs:
        """The model's inputs."""
        values: dict[str, Any] = self.model_dump()
        for name in ("state_center", "state_scale"):
            values[name] = tuple(values[name])
        return Inputs(**values)


class PolicyCard(_Strict):
    """The part of a card that `load_policy` needs."""

    library_name: Literal["sad_hpc"]
    model: ModelConfig
    inputs: InputsCard
    longest_context: Positive
    weights_checksum: str

    @model_validator(mode="after")
    def _check_context(self) -> "PolicyCard":
        if self.longest_context > self.inputs.horizon:
            raise ValueError("longest_context is above inputs.horizon")
        return self


def read_card(path: Path) -> tuple[PolicyCard, dict[str, Any]]:
    """Return the validated card in a file, and the file's whole content.

    Raises:
        UserError: the file is missing or is not a card of sad_hpc.
    """
    try:
        content = parse_json(path)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
    else:
        try:
            return PolicyCard.model_validate(content), content
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    raise UserError(
        f"{path.parent} does not hold a policy ({path.name}: {reason}); make one with `sad-hpc "
        "export RUN --weights FOLDER`"
    )
