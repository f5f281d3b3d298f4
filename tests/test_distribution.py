"""The source distribution, and the wheel that is built from it, without the repository."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from sad_hpc.shipped.files import CONFIGS, SLURM, copy_shipped
from tests.conftest import ROOT

MINUTES = 10

NOT_SHIPPED = ("results/", ".ci/", ".git", ".pre-commit")
"""Beginnings of the names of tracked files that users do not need: results are 40 MB."""

BUILD = "import sys; from setuptools import build_meta as b; print(b.build_{0}(sys.argv[1]))"


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build a distribution with the setuptools that are installed, as pip does."""
    command = [sys.executable, "-c", BUILD.format(kind), str(folder)]
    out = subprocess.check_output(
        command, cwd=source, text=True, stderr=subprocess.STDOUT, timeout=60 * MINUTES
    )
    return folder / out.splitlines()[-1]


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    command = ["git", "-C", str(ROOT), "ls-files"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("needs a clone of the repository")
    names = [name for name in done.stdout.splitlines() if not name.startswith(NOT_SHIPPED)]
    return [name for name in names if os.path.lexists(ROOT / name)]


@pytest.fixture(scope="module")
def unpacked(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    folder = tmp_path_factory.mktemp("distribution")
    clone = folder / "clone"
    for name in tracked:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).symlink_to(
            os.readlink(ROOT / name) if (ROOT / name).is_symlink() else ROOT / name
        )
    with tarfile.open(build("sdist", clone, folder)) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (found,) = (folder / "unpacked").iterdir()
    return found


@pytest.fixture(scope="module")
def installed(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build("wheel", unpacked, folder)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [*command, "--target", str(folder / "target"), str(wheel)],
        check=True,
        timeout=60 * MINUTES,
    )
    return folder / "target"


def test_a_source_distribution_has_all_that_is_tracked(unpacked: Path, tracked: list[str]) -> None:
    assert [name for name in tracked if not (unpacked / name).exists()] == []


def test_a_wheel_works_in_an_empty_folder(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))

    def sad_hpc(*arguments: str) -> str:
        command = [sys.executable, "-m", "sad_hpc.cli", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=60 * MINUTES
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import sad_hpc.shipped.files as f; print(f.CONFIGS)"
    found = subprocess.check_output([sys.executable, "-c", where], cwd=tmp_path, text=True).strip()
    assert found == str(installed / "sad_hpc/shipped/configs")
    sad_hpc("init")
    for source in (CONFIGS, SLURM):
        for path in source.rglob("*.*"):
            copy = tmp_path / source.name / path.relative_to(source)
            assert copy.read_bytes() == path.read_bytes()
            assert os.access(copy, os.X_OK) is (copy.suffix == ".sh")
    monkeypatch.setenv("PATH", "/nowhere")  # where no Slurm can be asked
    printed = sad_hpc("launch", "configs/quickstart.yaml", "--cluster", "slurm", "--dry-run")
    assert "#SBATCH --mem-per-cpu=2048M" in printed


def test_copies_replace_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sad_hpc.cli import main

    written = copy_shipped(tmp_path)
    assert len(written) > 10 and copy_shipped(tmp_path) == []
    assert copy_shipped(ROOT) == []
    changed = tmp_path / "configs/darkroom.yaml"
    changed.write_text("name: mine\n")
    (tmp_path / "slurm/collect.sh").unlink()
    assert main(["init", str(tmp_path)]) == 1
    assert f"{changed} has other content: choose another folder" in capsys.readouterr().err
    assert changed.read_text() == "name: mine\n"
    assert not (tmp_path / "slurm/collect.sh").exists()
