"""Shared libraries, preloaded between a program and the kernel; compiled on demand."""

import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(source: str, folder: Path) -> Path:
    """The library of a C source, to be named in LD_PRELOAD; skips the test without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("a library that stands before the kernel needs a C compiler")
    code, library = folder / "preload.c", folder / "preload.so"
    code.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, code, "-ldl"], check=True)
    return library
