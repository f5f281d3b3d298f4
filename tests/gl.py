"""Skip tests that need OpenGL if it is missing and SAD_HPC_REQUIRE_GL is not set."""

import os

import pytest

from sad_hpc.errors import UserError


def require_gl() -> None:
    """Call it at the top of a test module that renders."""
    try:
        from sad_hpc.tasks.miniworld.renderer import shared_renderer

        shared_renderer(25)
    except UserError as error:
        if os.environ.get("SAD_HPC_REQUIRE_GL"):
            raise
        pytest.skip(str(error), allow_module_level=True)
