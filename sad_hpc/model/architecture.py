"""The model that a config names: the transformer, or the class of another package."""

from sad_hpc.errors import ConfigError, described
from sad_hpc.experiment.installed import installed
from sad_hpc.experiment.sections import GPT2, ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.model.transformer import Transformer
from sad_hpc.user_code import FAILURES, UserCode


def make_model(config: ModelConfig, inputs: Inputs) -> SequenceModel:
    """Return a model with initial weights.

    Raises:
        ConfigError: `model.architecture` is unknown or no `SequenceModel`, or its class fails or
            has tensors that a training would not keep.
    """
    name = config.architecture
    if name == GPT2:
        return Transformer(config, inputs)
    text, made = f"model.architecture={name}", model_class(name)
    with UserCode(lambda: text):
        try:
            model: SequenceModel = made(config, inputs)  # type: ignore[call-arg, arg-type]
        except FAILURES as error:
            raise ConfigError(f"{text} cannot be made: {described(error)}") from error
    if fault := _fault(model):
        raise ConfigError(f"{text} has {fault}")
    return model


def model_class(name: str) -> type[SequenceModel]:
    """Return the class of another package's model.

    Raises:
        ConfigError: the name is unknown, or is of no `SequenceModel`.
    """
    made = installed("model.architecture", name)
    if not (isinstance(made, type) and issubclass(made, SequenceModel)):
        raise ConfigError(
            f"model.architecture={name}: {made!r} is no subclass of "
            "sad_hpc.model.sequence_model.SequenceModel"
        )
    return made


def _fault(model: SequenceModel) -> str:
    """Return why one flat parameter cannot hold a model's tensors; empty if it can."""
    own = dict(model.named_parameters())
    for name, weight in model.named_parameters(remove_duplicate=False):
        if name not in own:
            return f"the parameter {name} under two names: tied weights are not supported"
        if not weight.requires_grad:
            return f"the fixed parameter {name}: make it a buffer with persistent=False"
    if others := [name for name in model.state_dict() if name not in own]:
        return f"the buffer {others[0]}, which is not saved: make it with persistent=False"
    return ""
