"""Standard output of commands, libraries and child processes."""

import os
import subprocess
from pathlib import Path

from tests.parallel.test_ranks import BIN


def test_the_program_that_replaces_a_command_has_its_standard_output(tmp_path: Path):
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\necho a rank speaks\n")
    srun.chmod(0o755)
    done = subprocess.run(
        [BIN / "sad-hpc", "ranks", "collect", "config.yaml"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a rank speaks\n", "")
