"""The cache of compiled kernels."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from sad_hpc.kernels import compilation
from tests.conftest import TINY


@pytest.fixture
def sources_are_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This package's folder cannot be written; the user's cache folder is an empty one."""
    may = os.access
    sources = Path(compilation.__file__).parent
    monkeypatch.setattr(os, "access", lambda path, mode: path != sources and may(path, mode))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def test_elsewhere_the_cache_is_in_the_users_own_folder(
    sources_are_others: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = compilation.cache_folder()
    assert folder == compilation.cache_folder()
    assert folder.parent == tmp_path / "caches/sad_hpc" and folder.name.startswith("kernels-")
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the standard says to ignore
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compilation.cache_folder().parent == tmp_path / ".cache/sad_hpc"


@pytest.mark.parametrize(
    "mode, link, foreign",
    [(0o777, False, False), (0o1777, False, False), (0o770, False, False), (0o700, True, False),
     (0o700, False, True)],
)  # fmt: skip
def test_a_cache_folder_that_another_may_have_prepared_is_not_used(
    sources_are_others: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    mode: int, link: bool, foreign: bool,
) -> None:  # fmt: skip
    prepared = tmp_path / "caches/sad_hpc"
    real = tmp_path / "real" if link else prepared
    real.mkdir(parents=True)
    real.chmod(mode)
    if link:
        prepared.parent.mkdir()
        prepared.symlink_to(real)
    if foreign:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    folder, another = compilation.cache_folder(), compilation.cache_folder()
    assert folder != another, "the name must not be known beforehand"
    for each in (folder, another):
        assert prepared not in (each, *each.parents) and real not in (each, *each.parents)
        assert each.stat().st_mode & 0o777 == 0o700
        assert each.stat().st_uid == os.getuid()


def test_sources_that_everybody_may_write_keep_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()
    monkeypatch.setattr(compilation, "__file__", str(tmp_path / "package/compilation.py"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert compilation.cache_folder().is_relative_to(tmp_path / "package")
    (tmp_path / "package").chmod(0o777)
    assert compilation.cache_folder().is_relative_to(tmp_path / "caches")


def test_a_compilation_is_announced_once_and_a_cached_kernel_is_not() -> None:
    kernels = [numba.njit(lambda x, n=n: x + n) for n in range(3)]
    said: list[str] = []
    with compilation.compilation_announced(said.append):
        assert [kernel(1) for kernel in kernels] == [1, 2, 3]
        assert said == [compilation.COMPILING]
    said.clear()
    with compilation.compilation_announced(said.append):
        assert kernels[0](1) == 1
    assert said == []


def test_kernels_that_may_not_be_compiled_are_refused_in_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sad_hpc.cli", "collect", str(TINY)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("sad-hpc: error: NUMBA_DISABLE_JIT is set")
    assert len(done.stderr.splitlines()) == 1
