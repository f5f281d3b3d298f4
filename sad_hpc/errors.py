"""The one exception that users are meant to see: a message that names the thing and the way out."""

ERROR_PREFIX = "sad-hpc: error: "
"""Begins the line that says why a command or a job failed."""


class SadError(Exception):
    """A fault that the user can mend; the command line prints it in one line, without traceback."""


class ConfigError(SadError):
    """A configuration that cannot be run."""


class DatasetError(SadError):
    """A dataset that is missing, incomplete, damaged or of another kind."""


class EnvironmentFailure(SadError):
    """A user's environment has failed in a step; another try may succeed."""


class RenderError(SadError):
    """OpenGL has failed on the way; another process may succeed."""


class DivergedError(SadError):
    """A training whose losses, gradients or weights are no longer finite."""

    REMEDY = "lower pretrain.learning_rate, or set pretrain.gradient_clipping, and train again"


class CheckpointError(SadError):
    """A checkpoint that is damaged or belongs to another model or run."""
