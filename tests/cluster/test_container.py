"""Jobs in a container on a real Slurm: the image of containers/sad_hpc.def, unpacked.

Where there is no Apptainer, stubs/apptainer enters it.  SAD_HPC_IMAGE names the image's folder,
which containers/unpack.sh makes; without it, these tests are skipped.
"""

import os
import subprocess
from pathlib import Path

import pytest

from sad_hpc.launch.records import load_records
from tests.cluster.pipeline import Pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

IMAGE = os.environ.get("SAD_HPC_IMAGE")
STUBS = Path(__file__).parent / "stubs"


@pytest.fixture
def contained(dev_cluster: dict[str, str], tmp_path: Path) -> Pipeline:
    """A pipeline whose jobs run in the image, where the launcher's Python is not to be seen."""
    if IMAGE is None:
        pytest.skip("SAD_HPC_IMAGE names no unpacked image (containers/unpack.sh)")
    image = f"cluster.container={Path(IMAGE).absolute()}"
    # Both kinds of programs are looked for on the nodes: Slurm's own, and apptainer.
    setup = f"cluster.setup=[export PATH={STUBS}:$PATH]"
    return Pipeline(dev_cluster, tmp_path, image, setup)


def test_all_stages_run_in_a_container(contained: Pipeline) -> None:
    log = contained.finish()
    assert "table:" in log
    pickled = load_records(contained.run)[contained.step("pretrain").title].log
    assert "error" not in Path(pickled).read_text()


def test_a_job_in_a_container_is_queued_again_by_its_script(contained: Pipeline) -> None:
    process = contained.launch("--wait")
    contained.wait_until_half_done("pretrain")
    job = contained.job("pretrain")
    subprocess.run(["scancel", "--signal=USR2", job], env=contained.env, check=True)
    contained.finish(process)
    assert contained.job("pretrain") == job
    assert "Restarts=1" in contained.shown("pretrain")
