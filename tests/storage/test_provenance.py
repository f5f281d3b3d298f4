"""Provenance of the code, for every kind of installation."""

import shutil
import subprocess
from pathlib import Path

import pytest

from sad_hpc.aggregate.origin import describe_stages
from sad_hpc.storage.provenance import PACKAGE, _git_state, provenance, source_digest

NONE = {"commit": None, "dirty": None}


def git(folder: Path, *arguments: str) -> str:
    names = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    command = ["git", "-C", str(folder), *names, *arguments]
    return subprocess.check_output(command, text=True, stderr=subprocess.STDOUT).strip()


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A package that lies in another project's repository, which ignores it."""
    git(tmp_path, "init", "--quiet")
    package = tmp_path / "venv/sad_hpc"
    (package / "part").mkdir(parents=True)
    (package / "__init__.py").write_text('"""A package."""\n')
    (package / "part/code.py").write_text("x = 1\n")
    (tmp_path / "own.py").touch()
    git(tmp_path, "add", "own.py")
    git(tmp_path, "commit", "--quiet", "--message", "Their own")
    return package


def test_a_repository_that_does_not_track_the_package_is_not_named(foreign: Path) -> None:
    assert _git_state(foreign) == NONE
    git(foreign, "add", ".")
    git(foreign, "commit", "--quiet", "--message", "Now tracked")
    assert _git_state(foreign) == {"commit": git(foreign, "rev-parse", "HEAD"), "dirty": False}
    (foreign / "part/code.py").write_text("x = 2\n")
    assert _git_state(foreign)["dirty"] is True


def test_a_hook_of_another_repository_changes_nothing(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (foreign.parents[1] / "__init__.py").touch()
    git(foreign.parents[1], "add", "__init__.py")
    monkeypatch.setenv("GIT_DIR", str(foreign.parents[1] / ".git"))
    assert _git_state(foreign) == NONE


def test_version_and_sources_are_always_known(foreign: Path) -> None:
    found = provenance()
    assert found["version"] and found["sources"] == source_digest(PACKAGE)
    before = source_digest(foreign)
    copy = shutil.copytree(foreign, foreign.parent / "elsewhere")
    assert source_digest(copy) == before
    (copy / "part/code.py").rename(copy / "part/other.py")
    source_digest.cache_clear()
    assert source_digest(copy) != before


def test_pages_name_the_sources_where_no_commit_is_known() -> None:
    stages = {"collect/x": {"version": "1.2", "sources": 32 * "a"}, "evaluate/y": {}}
    rows = describe_stages({"stages": stages})
    assert [row[1] for row in rows] == [f"version 1.2, sources {12 * 'a'}", "unknown"]
