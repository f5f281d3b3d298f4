"""Ownership checks: jobs unpickle files of their folders, so a user who can write there, or can put
another folder in its place, can run code as the user who starts the jobs."""

import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sad_hpc.errors import UserError

TRUSTED = "SAD_HPC_TRUSTED_OWNERS"
"""Environment variable: comma-separated names of users whose files count as this user's."""

UID_MAP = Path("/proc/self/uid_map")
"""Which users of this machine a container knows; where the file is missing, it knows all."""

OVERFLOW = Path("/proc/sys/kernel/overflowuid")
"""The number that stands for all other users in a container."""


def check_ownership(folder: Path) -> None:
    """Refuse a folder that another user could change, or that holds a file they could change.

    The check covers `folder`, all folders above it and all files and folders below it, by their
    names and by the targets of links.  Each must belong to this user, to root or to one of
    SAD_HPC_TRUSTED_OWNERS, and must not be writable by everyone.  Above `folder` a sticky bit is
    enough, as in /tmp.  What a group may write passes: users of a group's folder trust the group.
    What does not exist passes.

    A container without root's privileges (rootless Apptainer) cannot tell root from other users:
    there, the folders above count as root's.  A launcher outside has told them apart.

    Raises:
        UserError: a path belongs to another user or is writable by everyone.
    """
    seen: set[str] = set()
    tops = [folder]
    for top in tops:  # grows by the targets of links that lead elsewhere
        real = os.path.realpath(top)
        if real in seen:
            continue
        _check_above(top)
        _check(top, remedy=top)
        _check(Path(real), remedy=top)
        tops += [Path(os.path.realpath(link)) for link in _links_below(real, top, seen)]


def _check_above(folder: Path) -> None:
    """Raises: see `check_ownership`."""
    unknown = _unknown_owner()
    ways = (folder.absolute().parents, Path(os.path.realpath(folder)).parents)
    for path in dict.fromkeys([*ways[0], *ways[1]]):
        _check(path, remedy=path, sticky_is_enough=True, unknown_owner=unknown)


def _links_below(top: str, remedy: Path, seen: set[str]) -> list[str]:
    """Check what lies below a folder, add it to `seen`, and return the links.

    Raises:
        UserError: see `check_ownership`.
    """
    links, folders = [], [top]
    while folders:
        folder = folders.pop()
        seen.add(folder)
        for entry in _entries(folder):
            _check(Path(entry.path), remedy)
            if entry.is_symlink():
                links.append(entry.path)
            elif entry.is_dir():
                folders.append(entry.path)
            else:
                seen.add(entry.path)
    return links


def _entries(folder: str) -> Iterator["os.DirEntry[str]"]:
    """What a folder lists; nothing if it is missing, a file, or unreadable."""
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries


def _check(
    path: Path,
    remedy: Path,
    sticky_is_enough: bool = False,
    unknown_owner: int | None = None,
) -> None:
    """Check one path; see `check_ownership`.

    Args:
        path: a file, a folder or a link, which is not followed.
        remedy: the folder whose modes the message says to change.
        sticky_is_enough: accept a sticky folder that everyone may write.
        unknown_owner: a user number to accept.
    """
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    owner = status.st_uid
    if owner not in (0, os.geteuid(), unknown_owner) and _user_name(owner) not in _trusted_names():
        raise UserError(
            f"{path} belongs to {_user_name(owner)}, who could run code as you there: choose "
            f"another folder (--runs), or {TRUSTED}={_user_name(owner)} if you trust them"
        )
    sticky = sticky_is_enough and status.st_mode & stat.S_ISVTX
    if not stat.S_ISLNK(status.st_mode) and status.st_mode & stat.S_IWOTH and not sticky:
        mend = f"chmod -R o-w {shlex.quote(str(remedy))}, or " if owner == os.geteuid() else ""
        raise UserError(
            f"{path} is writable by everyone ({stat.filemode(status.st_mode)}), who could run "
            f"code as you there: {mend}choose another folder (--runs)"
        )


def _unknown_owner() -> int | None:
    """The number that stands for root and for others; None where every user has their own."""
    try:
        mapped = [line.split()[1] for line in UID_MAP.read_text().splitlines()]
        return None if "0" in mapped else int(OVERFLOW.read_text())
    except OSError:
        return None


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _trusted_names() -> set[str]:
    return {name.strip() for name in os.environ.get(TRUSTED, "").split(",")}
