"""Ownership checks of run folders.

Jobs unpickle files of their folders.  A user who can write there, or can replace the folder, can
therefore run code as the user who starts the jobs.
"""

import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sad_hpc.errors import UserError

TRUSTED = "SAD_HPC_TRUSTED_OWNERS"
"""Environment variable with comma-separated names of users whose files count as this user's."""

UID_MAP = Path("/proc/self/uid_map")
"""Users of the machine that a container can distinguish; without this file, all of them."""

OVERFLOW = Path("/proc/sys/kernel/overflowuid")
"""File with the number that stands for all other users in a container."""


def check_ownership(folder: Path) -> None:
    """Refuse a folder that another user could change, or that holds a file they could change.

    The check covers `folder`, all folders above it and all files and folders below it, and follows
    links.  Each path must belong to this user, to root or to one of SAD_HPC_TRUSTED_OWNERS, and
    must not be writable by everyone.  Above `folder` a sticky bit is enough, as in /tmp.
    Group-writable and missing paths pass.

    A container without root's privileges (rootless Apptainer) cannot tell root from other users.
    There the folders above count as root's; the launcher outside has already checked them.

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


def is_private(folder: Path) -> bool:
    """Return whether a path is a folder of this user, no link, that others cannot write to."""
    status = folder.lstat()
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return own and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _check_above(folder: Path) -> None:
    """Check the folders above a folder, by name and by the targets of links.

    Raises:
        UserError: see `check_ownership`.
    """
    unknown = _unknown_owner()
    ways = (folder.absolute().parents, Path(os.path.realpath(folder)).parents)
    for path in dict.fromkeys([*ways[0], *ways[1]]):
        _check(path, remedy=path, sticky_is_enough=True, unknown_owner=unknown)


def _links_below(top: str, remedy: Path, seen: set[str]) -> list[str]:
    """Check the paths below a folder, add them to `seen`, and return the links.

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
    """Return the entries of a folder; none if it is missing, a file, or unreadable."""
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
        remedy: the folder whose mode the message says to change.
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
            f"{path} belongs to {_user_name(owner)}, who could run code as you: choose another "
            f"folder (--runs), or set {TRUSTED}={_user_name(owner)} if you trust them"
        )
    sticky = sticky_is_enough and status.st_mode & stat.S_ISVTX
    if not stat.S_ISLNK(status.st_mode) and status.st_mode & stat.S_IWOTH and not sticky:
        mend = f"chmod -R o-w {shlex.quote(str(remedy))}, or " if owner == os.geteuid() else ""
        raise UserError(
            f"{path} is writable by everyone ({stat.filemode(status.st_mode)}), so others could "
            f"run code as you: {mend}choose another folder (--runs)"
        )


def _unknown_owner() -> int | None:
    """Return the user number that a rootless container shows for root; None outside of one."""
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
