"""The parent process of a local job's ranks: it starts them, and ends all when one has died.

submitit's controller would also wait for ranks that wait for a dead one.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import submitit

from sad_hpc.errors import ERROR_PREFIX, UserError
from sad_hpc.parallel.ranks import LAST_WORDS_SECONDS
from sad_hpc.parallel.submitit_private import LOCAL_REQUEUE_RETURN_CODE, Controller, LocalJob

LOOK_SECONDS = 0.1

STOPPED = 128 + signal.SIGTERM
"""Exit code of ranks that stopped because of a signal."""


class RanksExecutor(submitit.LocalExecutor):
    """submitit's local executor, with `RanksController` and without a time limit."""

    def _submit_command(self, command: str) -> "LocalJob[Any]":
        ranks = self.parameters["tasks_per_node"]
        environment = {
            "CUDA_VISIBLE_DEVICES": ",".join(visible_gpus(self.parameters["gpus_per_node"])),
            "SUBMITIT_EXECUTOR": "local",
            "SUBMITIT_LOCAL_COMMAND": command,
            "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
            "SUBMITIT_LOCAL_NODEID": "0",
            "SUBMITIT_LOCAL_NTASKS": str(ranks),
            "SUBMITIT_LOCAL_SIGNAL_DELAY_S": "0",
            "SUBMITIT_LOCAL_TIMEOUT_S": "0",
            "SUBMITIT_LOCAL_WITH_SHELL": "",
            "SUBMITIT_STDERR_TO_STDOUT": "1",
        }
        program = shlex.join([sys.executable, "-m", __name__, str(self.folder)])
        lines = [f"exec {program}"]
        if setup := self.parameters["setup"]:
            # The shell becomes the controller, so its process id is the job's id.
            log = f'{shlex.quote(str(self.folder))}/"$$"_0_log.out'
            lines = [f"exec 3>&1 4>&2 >>{log} 2>&1", *setup, "exec >&3 2>&4 3>&- 4>&-", *lines]
        process = subprocess.Popen(["sh", "-c", "\n".join(lines)], env=os.environ | environment)
        return RanksJob(self.folder, str(process.pid), list(range(ranks)), process)


def visible_gpus(wanted: int) -> list[str]:
    """Return the names of the first `wanted` GPUs in CUDA_VISIBLE_DEVICES: numbers or UUIDs.

    Raises:
        UserError: there are fewer than wanted.
    """
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return [str(number) for number in range(wanted)]
    names = [name.strip() for name in value.split(",") if name.strip() not in ("", "-1")]
    if wanted > len(names):
        raise UserError(
            f"the cluster settings need {wanted} GPUs, but CUDA_VISIBLE_DEVICES has "
            f"{len(names)}: lower ranks or gpus"
        )
    return names[:wanted]


class RanksJob(LocalJob[Any]):
    """A local job that knows whether its ranks succeeded."""

    @property
    def ended_well(self) -> bool:
        """True if every rank succeeded; submitit also calls a failed job finished."""
        return self._process is not None and self._process.poll() == 0


class RanksController(Controller):
    """The controller of a local job's ranks; after a failure it soon ends the other ranks.

    They have LAST_WORDS_SECONDS to log their own errors.  `run` kills ranks that live after `wait`.
    """

    codes: Sequence[int | None] = ()
    """The return value of the last `wait`."""

    def wait(self, freq: int = 24) -> Sequence[int | None]:
        """Return exit codes, negative for signals and None for ranks that still run."""
        failed_at: float | None = None
        while True:
            codes = [rank.poll() for rank in self.tasks]
            if failed_at is None and any(map(_fails, codes)):
                failed_at = time.monotonic()
                self._report_deaths(codes)
            gone = failed_at is not None and time.monotonic() - failed_at > LAST_WORDS_SECONDS
            if gone or None not in codes:
                self.codes = codes
                return codes
            time.sleep(LOOK_SECONDS)

    def _report_deaths(self, codes: Sequence[int | None]) -> None:
        """Log which ranks were killed by a signal, since they could not log it themselves."""
        for rank, (code, log) in enumerate(zip(codes, self.stdouts, strict=True)):
            if code is not None and code < 0:
                log.write(f"{ERROR_PREFIX}rank {rank} of {self.ntasks} {cause_of_death(-code)}\n")
                log.flush()


OUT_OF_MEMORY = (
    "possibly out of memory. Launch again with more memory or fewer parallel jobs to resume"
)


def cause_of_death(number: int) -> str:
    """Describe the end of a process that a signal has killed."""
    hint = f"; {OUT_OF_MEMORY}" if number == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(number).name}{hint}"


def _fails(code: int | None) -> bool:
    return code not in (None, 0, STOPPED, LOCAL_REQUEUE_RETURN_CODE)


if __name__ == "__main__":
    controller = RanksController(Path(sys.argv[1]))
    controller.run()
    sys.exit(any(code != 0 for code in controller.codes))
