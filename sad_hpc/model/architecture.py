"""The model that a config names: the transformer, or the class of another package."""

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.installed import installed
from sad_hpc.experiment.sections import GPT2, ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.model.transformer import Transformer


def make_model(config: ModelConfig, inputs: Inputs) -> SequenceModel:
    """Return a model with initial weights.

    Raises:
        ConfigError: `model.architecture` is unknown, or is no `SequenceModel`.
    """
    name = config.architecture
    if name == GPT2:
        return Transformer(config, inputs)
    made = installed("model.architecture", name)
    if not (isinstance(made, type) and issubclass(made, SequenceModel)):
        raise ConfigError(
            f"model.architecture={name}: {made!r} is no subclass of "
            "sad_hpc.model.sequence_model.SequenceModel"
        )
    model: SequenceModel = made(config, inputs)  # type: ignore[call-arg, arg-type]
    return model
