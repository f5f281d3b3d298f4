"""Private parts of submitit that this package uses; tests/test_private_apis.py checks them.

`launch.executor.StageExecutor` and `launch.controller` also override private methods, which the
test lists.
"""

from submitit.core.utils import (
    FailedJobError,
    FailedSubmissionError,
    JobPaths,
    UncompletedJobError,
)
from submitit.helpers import DelayedSubmission, clean_env
from submitit.local.local import LOCAL_REQUEUE_RETURN_CODE, Controller, LocalJob
from submitit.slurm.slurm import SlurmJobEnvironment

TESTED = "1.5"
"""The version of submitit against which these parts were tested."""

PROGRAM = "submitit.core._submit"
"""The module that a job runs."""

__all__ = [
    "LOCAL_REQUEUE_RETURN_CODE",
    "PROGRAM",
    "TESTED",
    "Controller",
    "DelayedSubmission",
    "FailedJobError",
    "FailedSubmissionError",
    "JobPaths",
    "LocalJob",
    "SlurmJobEnvironment",
    "UncompletedJobError",
    "clean_env",
]
