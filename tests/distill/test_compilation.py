"""What is loaded with the compiled kernels."""

import subprocess
import sys

CODE = """
import sys
import numpy as np
from numba import njit
from sad_hpc.distill import make_block
from sad_hpc.experiment import DataConfig
from sad_hpc.tasks import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig

make_block(make_family(DarkroomConfig()), DataConfig(tasks=98, trust_horizon=3), "train", 0)
print("scipy.linalg" in sys.modules)
print(njit(lambda a: np.linalg.inv(a) @ a)(np.diag([2.0, 4.0])).tolist())
"""


def test_kernels_do_without_scipys_linear_algebra_and_leave_it_to_those_who_ask():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["False", "[[1.0, 0.0], [0.0, 1.0]]"], done.stderr
