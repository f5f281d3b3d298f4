"""A shared file system that shows a new file to other processes late, as one of a network may."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sad_hpc.aggregate import aggregate
from sad_hpc.collect.stage import collect
from sad_hpc.dataset.schema import Manifest
from sad_hpc.evaluate.element import evaluate
from sad_hpc.experiment.load import load_experiment
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.storage.run import Run
from tests.conftest import TINY, clockless_metrics
from tests.preload import compiled

pytestmark = pytest.mark.faults

SAD_HPC = str(Path(sys.executable).parent / "sad-hpc")
OVERRIDES = ["methods=[SAD]", "seeds=[0]"]

# For two seconds no file below $LATE_FOLDER is there for processes other than the one that made it.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static unsigned long long mine[4096];  // inodes; they outlive a rename
static int made;

static int is_hidden(const char *path) {
    const char *folder = getenv("LATE_FOLDER");
    struct statx file;
    struct timespec now;
    int error = errno;
    if (!path || !folder || strncmp(path, folder, strlen(folder))) return 0;
    if (syscall(SYS_statx, AT_FDCWD, path, 0, STATX_BASIC_STATS | STATX_BTIME, &file)) {
        errno = error;
        return 0;
    }
    for (int i = 0; i < made && i < 4096; i++) if (mine[i] == file.stx_ino) return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    if (!S_ISREG(file.stx_mode) || now.tv_sec - file.stx_btime.tv_sec >= 2) return 0;
    errno = ENOENT;
    return 1;
}

static void remember(int handle) {
    struct statx file;
    if (handle >= 0 && !syscall(SYS_statx, handle, "", AT_EMPTY_PATH, STATX_INO, &file))
        mine[made++ % 4096] = file.stx_ino;
}

#define OPEN(name) \
int name(const char *path, int flags, ...) { \
    static int (*real)(const char *, int, ...); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
    if (!(flags & O_CREAT) && is_hidden(path)) return -1; \
    int handle = real(path, flags, mode); \
    if (flags & O_CREAT) remember(handle); \
    return handle; \
}
#define FOPEN(name) \
FILE *name(const char *path, const char *mode) { \
    static FILE *(*real)(const char *, const char *); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    if (mode[0] == 'r' && is_hidden(path)) return NULL; \
    FILE *file = real(path, mode); \
    if (mode[0] != 'r' && file) remember(fileno(file)); \
    return file; \
}
#define STAT(name) \
int late_##name(const char *path, void *buffer) __asm__(#name); \
int late_##name(const char *path, void *buffer) { \
    static int (*real)(const char *, void *); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    return is_hidden(path) ? -1 : real(path, buffer); \
}
#define XSTAT(name) \
int name(int version, const char *path, void *buffer) { \
    static int (*real)(int, const char *, void *); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    return is_hidden(path) ? -1 : real(version, path, buffer); \
}
// Older C libraries have the last line's names.
OPEN(open) OPEN(open64) FOPEN(fopen) FOPEN(fopen64)
STAT(stat) STAT(stat64) STAT(lstat) STAT(lstat64)
XSTAT(__xstat) XSTAT(__xstat64) XSTAT(__lxstat) XSTAT(__lxstat64)
"""


@pytest.fixture
def late(tmp_path: Path) -> dict[str, str]:
    """The environment of programs that see files of tmp_path's `late` late."""
    library = compiled(SOURCE, tmp_path)
    return os.environ | {"LD_PRELOAD": str(library), "LATE_FOLDER": str(tmp_path / "late")}


def test_the_whole_pipeline_waits_for_its_files(late: dict[str, str], tmp_path: Path) -> None:
    experiment = load_experiment(TINY, OVERRIDES)
    struck, calm = (Run(experiment, tmp_path / name / "runs") for name in ("late", "calm"))
    results = [tmp_path / name / "results" for name in ("late", "calm")]
    command = [SAD_HPC, "launch", str(TINY), *OVERRIDES, "cluster.collect.ranks=2"]
    command += ["--runs", str(struck.runs), "--results", str(results[0])]
    done = subprocess.run(command, env=late, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    collect(calm)
    pretrain(calm, "SAD", 0)
    evaluate(calm, "SAD", 0)
    aggregate(calm, results[1])
    digests = [Manifest.load(run.data().path / "train").digest for run in (struck, calm)]
    assert digests[0] == digests[1]
    folders = [run.checkpoint("SAD", 0).path for run in (struck, calm)]
    weights = [torch.load(f / "weights.pt", weights_only=True)["state"] for f in folders]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    assert clockless_metrics(folders[0]) == clockless_metrics(folders[1])
    tables = [(each / "tiny/summary.csv").read_bytes() for each in results]
    assert tables[0] == tables[1]
