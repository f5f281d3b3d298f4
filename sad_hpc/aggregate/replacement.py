"""Replacement of a results folder as a whole: a new folder takes the place of the old one."""

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from sad_hpc.storage.files import write_error
from sad_hpc.storage.lock import held

NEW, OLD = "new", "old"


@contextmanager
def replacing(folder: Path, made: Collection[str]) -> Iterator[Path]:
    """Yield an empty folder to fill, which replaces `folder` if the block succeeds.

    Readers never see a mix of old and new tables.  The new folder is made in the hidden folder
    `.<name>` beside `folder`, whose lock admits one process at a time.

    Args:
        folder: the folder to replace, if it exists; a link is followed.
        made: names of the files that the block makes; other files in `folder` are kept.

    Raises:
        UserError: another process holds the lock, or a folder cannot be written; the old folder
            stays.
    """
    folder = folder.resolve()
    work = folder.parent / f".{folder.name}"
    with held(work):
        try:
            _settle(folder, work / OLD, made)
            shutil.rmtree(work / NEW, ignore_errors=True)  # left by a killed process
            (work / NEW).mkdir()
            yield work / NEW
            if folder.exists():
                shutil.copymode(folder, work / NEW)
                folder.rename(work / OLD)
            (work / NEW).rename(folder)
            _settle(folder, work / OLD, made)
        except OSError as error:
            raise write_error(folder, error) from error
        finally:
            shutil.rmtree(work / NEW, ignore_errors=True)


def _settle(folder: Path, old: Path, made: Collection[str]) -> None:
    """Complete or undo a replacement that a killed process has left unfinished."""
    if not old.exists():
        return
    if not folder.exists():
        old.rename(folder)
        return
    for path in old.iterdir():
        if path.name not in made and not (folder / path.name).exists():
            path.rename(folder / path.name)
    shutil.rmtree(old)
