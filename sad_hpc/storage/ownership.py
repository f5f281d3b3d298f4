"""Whether a folder is safe from other users: jobs unpickle what lies in their folders, so that who
may write there, or put another folder in its place, may run code as whoever starts them."""

import os
import pwd
import stat
from pathlib import Path

from sad_hpc.errors import SadError

TRUSTED = "SAD_HPC_TRUSTED_OWNERS"
"""An environment variable: names of users whose folders count as one's own, with commas."""

UID_MAP = Path("/proc/self/uid_map")
"""Which users of this machine a container knows; where it is none, all of them."""

OVERFLOW = Path("/proc/sys/kernel/overflowuid")
"""The number that all others have in there."""


def check_ownership(folder: Path) -> None:
    """Refuses a folder that another user could change; the parts of it that are not there pass.

    What is there, from `folder` up to the root, as it is named and as links lead, must belong to
    this user, to root or to one of SAD_HPC_TRUSTED_OWNERS.  It must not be writable by everyone;
    above `folder` itself a sticky bit will do, as in /tmp.  A folder that its group may write
    passes: who works in a group's folder trusts the group.

    A container without root's privileges (rootless Apptainer) does not tell root from other users:
    there, the folders above are taken for root's.  A launcher outside has told them apart.

    Raises:
        SadError: whose it is, or its mode, and the way out.
    """
    real = Path(os.path.realpath(folder))
    unknown = _unknown_owner()
    for path in dict.fromkeys(_way(folder.absolute()) + _way(real)):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        owner = _user_name(status.st_uid)
        mine = status.st_uid in (0, os.geteuid()) or owner in _trusted_names()
        if not mine and not (status.st_uid == unknown and path not in (folder.absolute(), real)):
            raise SadError(
                f"{path} belongs to {owner}, who could run code as you there: choose another "
                f"folder (--runs), or {TRUSTED}={owner} if you trust them"
            )
        sticky = status.st_mode & stat.S_ISVTX and path != real
        if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH and not sticky:
            raise SadError(
                f"{path} is writable by everyone ({stat.filemode(status.st_mode)}), who could run "
                f"code as you there: chmod o-w {path}, or choose another folder (--runs)"
            )


def _way(folder: Path) -> list[Path]:
    return [folder, *folder.parents]


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
