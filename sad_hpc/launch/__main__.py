"""One MPI rank of a local job: `mpiexec -n R python -m sad_hpc.launch PICKLE`.

The pickle is the one that submitit has made of the MpiJob.  A job itself may be too long for an
argument of a process, to which Linux gives 128 KiB.
"""

import sys

from submitit.helpers import DelayedSubmission

if __name__ == "__main__":
    DelayedSubmission.load(sys.argv[1]).function.job()
