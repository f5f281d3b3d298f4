"""The one exception that users are meant to see: a message that names the thing and the way out."""


class SadError(Exception):
    """A fault that the user can mend; the command line prints it in one line, without traceback."""


class ConfigError(SadError):
    """A configuration that cannot be run."""


class DatasetError(SadError):
    """A dataset that is missing, incomplete, damaged or of another kind."""


class RenderError(SadError):
    """OpenGL has failed on the way; another process may succeed."""


class CheckpointError(SadError):
    """A checkpoint that is damaged or belongs to another model or run."""
