"""One MPI rank of a local job: `mpiexec -n R python -m sad_hpc.launch JOB` with the job as JSON."""

import json
import sys

from sad_hpc.launch.job import StageJob

if __name__ == "__main__":
    StageJob(**json.loads(sys.argv[1]))()
