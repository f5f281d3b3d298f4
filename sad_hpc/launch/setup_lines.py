"""The user's own lines at the beginning of a job (`cluster.setup`), in sh or bash."""

import shlex
from collections.abc import Sequence

from sad_hpc.errors import ERROR_PREFIX

CHECK = (
    'check_setup() { [ "$1" = 0 ] || '
    f'{{ echo "{ERROR_PREFIX}cluster.setup: $2: exit code $1" >&2; exit "$1"; }}; }}'
)
"""A function of an exit code and the line that ended with it."""


def setup_lines(setup: Sequence[str]) -> list[str]:
    """Return the lines, each of which ends the job with an error that names it if it fails."""
    checked = [part for line in setup for part in (line, f'check_setup "$?" {shlex.quote(line)}')]
    return [CHECK, *checked] if setup else []
