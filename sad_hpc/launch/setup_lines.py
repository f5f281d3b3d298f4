"""The user's shell lines at the beginning of a job (`cluster.setup`), for sh or bash."""

import shlex
from collections.abc import Sequence

from sad_hpc.errors import ERROR_PREFIX

CHECK = (
    'check_setup() { [ "$1" = 0 ] || '
    f'{{ echo "{ERROR_PREFIX}cluster.setup: $2: exit code $1" >&2; exit "$1"; }}; }}'
)
"""A shell function that ends the job if the exit code of a line is not 0."""


def setup_lines(setup: Sequence[str]) -> list[str]:
    """Return the lines, each with a check that ends the job and names the line if it fails."""
    checked = [part for line in setup for part in (line, f'check_setup "$?" {shlex.quote(line)}')]
    return [CHECK, *checked] if setup else []
