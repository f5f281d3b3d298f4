"""The image's two definitions: Apptainer's and Docker's."""

import re

import pytest

from tests.conftest import ROOT

APPTAINER = (ROOT / "containers/sad_hpc.def").read_text()
DOCKER = (ROOT / "containers/Dockerfile").read_text()
INSTALL = (ROOT / "containers/install.sh").read_text()


def section(name: str) -> list[str]:
    """The lines of a section of the Apptainer definition."""
    _, _, rest = APPTAINER.partition(f"%{name}\n")
    return [line.strip() for line in rest.partition("\n%")[0].splitlines() if line.strip()]


def instructions(name: str) -> list[str]:
    """The arguments of an instruction of the Dockerfile."""
    return re.findall(rf"^{name} (.*)$", DOCKER, re.M)


def test_both_definitions_make_the_same_image():
    assert re.findall("^From: (.*)$", APPTAINER, re.M) == instructions("FROM")
    assert section("files") == instructions("COPY")
    assert section("post") == instructions("RUN") == ["/opt/sad_hpc/containers/install.sh"]
    assert section("environment") == [f"export {line}" for line in instructions("ENV")]


@pytest.mark.parametrize("line", section("files"))
def test_what_an_image_has_is_in_the_repository(line: str):
    source, target = line.split()
    assert (ROOT / source).exists()
    assert target in (f"/opt/sad_hpc/{source}", "/usr/local/bin/scontrol")


def test_an_image_is_installed_by_the_step_of_make():
    """The target that `make` builds first for every other one."""
    target = ".venv/installed"
    assert f"make -C /opt/sad_hpc {target}" in INSTALL
    assert re.search(rf"^{re.escape(target)}: setup\.cfg constraints\.txt$",
                     (ROOT / "Makefile").read_text(), re.M)  # fmt: skip
