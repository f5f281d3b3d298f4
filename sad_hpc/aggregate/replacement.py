"""A results folder that is made anew beside the old one, and takes its place when it is whole."""

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from sad_hpc.storage.files import write_error
from sad_hpc.storage.lock import held

NEW, OLD = "new", "old"


@contextmanager
def replacing(folder: Path, made: Collection[str]) -> Iterator[Path]:
    """An empty folder for the block to fill, which replaces `folder` if the block succeeds.

    So nobody reads old tables beside new ones.  It is made in the hidden folder `.<name>` beside
    `folder`, whose lock lets one process at a time do this, whichever run it reads.

    Args:
        folder: what is replaced, if it is there; where it is a link, the folder that it leads to.
        made: names of what the block makes; what else lies in `folder` is the user's, and stays.

    Raises:
        UserError: another process is at it, or a folder cannot be written; the old one stays.
    """
    folder = folder.resolve()
    work = folder.parent / f".{folder.name}"
    with held(work):
        try:
            _settle(folder, work / OLD, made)
            shutil.rmtree(work / NEW, ignore_errors=True)  # of a process that was killed
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
    """Ends a replacement, wherever a process that was killed has left it."""
    if not old.exists():
        return
    if not folder.exists():
        old.rename(folder)
        return
    for path in old.iterdir():
        if path.name not in made and not (folder / path.name).exists():
            path.rename(folder / path.name)
    shutil.rmtree(old)
