"""Ownership checks: which folders are safe from other users."""

import os
import pwd
import re
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sad_hpc.errors import UserError
from sad_hpc.storage import ownership
from sad_hpc.storage.ownership import TRUSTED, check_ownership


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch):
    """Makes a folder another user's."""

    def give(folder: Path) -> None:
        if os.geteuid() == 0:
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    return give


@given(
    modes=st.lists(st.sampled_from([0o700, 0o755, 0o775, 0o2770, 0o777, 0o1777]), min_size=1,
                   max_size=4),
    missing=st.integers(0, 2),
)  # fmt: skip
@settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_way_may_be_writable_by_all_with_a_sticky_bit_and_the_folder_not_at_all(
    modes: list[int], missing: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("way")
    for mode in modes:
        folder = folder / "x"
        folder.mkdir()
        folder.chmod(mode)
    target = folder.joinpath(*["missing"] * missing)
    if 0o777 in modes or (modes[-1] == 0o1777 and not missing):
        with pytest.raises(UserError, match=r"writable by everyone \(d.*chmod -R o-w .*--runs"):
            check_ownership(target)
    else:
        check_ownership(target)


PATHS = ("logs", "logs/collect", "logs/collect/1_submitted.pkl", "state", "state/step-1/model.pt")


@given(
    changed=st.sampled_from(PATHS),
    mode=st.sampled_from([0o700, 0o755, 0o775, 0o2770, 0o777, 0o1777, 0o702]),
)
@settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_nothing_below_may_be_writable_by_everyone_and_the_message_says_how_to_mend_it(
    changed: str, mode: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("the way") / "run"
    for path in PATHS:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch() if "." in path else (folder / path).mkdir(exist_ok=True)
    (folder / changed).chmod(mode)
    if mode & stat.S_IWOTH:
        _obey_until_it_passes(folder, times=1)
    check_ownership(folder)


def _obey_until_it_passes(folder: Path, times: int) -> None:
    """Runs the command of each refusal; there are exactly so many."""
    for _ in range(times):
        with pytest.raises(UserError, match="writable by everyone") as refusal:
            check_ownership(folder)
        found = re.search(r"as you: (chmod .*), or choose another", str(refusal.value))
        assert found is not None
        subprocess.run(shlex.split(found[1]), check=True)
    check_ownership(folder)


def test_obeying_the_messages_after_chmod_777_leaves_nothing_open(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (runs / "tiny/logs/collect").mkdir(parents=True)
    (runs / "tiny/logs/collect/1_submitted.pkl").touch()
    subprocess.run(["chmod", "-R", "777", str(runs)], check=True)
    _obey_until_it_passes(runs / "tiny", times=1)
    assert not [path for path in runs.rglob("*") if path.lstat().st_mode & stat.S_IWOTH]


@pytest.mark.parametrize("theirs", PATHS)
def test_what_belongs_to_another_is_refused_below_the_folder(
    theirs: str, tmp_path: Path, give_away
) -> None:
    (tmp_path / "run" / theirs).mkdir(parents=True)
    check_ownership(tmp_path / "run")
    give_away(tmp_path / "run" / theirs)
    with pytest.raises(UserError, match=f"belongs to .*{TRUSTED}="):
        check_ownership(tmp_path / "run")


def test_links_below_are_followed_once_each(tmp_path: Path) -> None:
    for name in ("run", "elsewhere/data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/data").symlink_to(tmp_path / "elsewhere/data")
    (tmp_path / "run/nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "run/itself").symlink_to("itself")
    (tmp_path / "elsewhere/data/back").symlink_to(tmp_path / "run")
    check_ownership(tmp_path / "run")
    (tmp_path / "elsewhere").chmod(0o777)
    with pytest.raises(UserError, match="elsewhere is writable"):
        check_ownership(tmp_path / "run")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away needs root")
def test_no_command_is_advised_that_only_the_owner_could_run(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "system/run").mkdir(parents=True)
    (tmp_path / "system").chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match="as you: choose another folder"):
        check_ownership(tmp_path / "system/run")


@pytest.mark.parametrize("below", [".", "mine", "mine/missing"])
def test_what_belongs_to_another_is_refused_on_the_whole_way(
    below: str, tmp_path: Path, give_away, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs/mine").mkdir(parents=True)
    give_away(tmp_path / "theirs")
    folder = tmp_path / "theirs" / below
    with pytest.raises(UserError, match=rf"belongs to (\w+), .*--runs.*{TRUSTED}=\1 ") as refusal:
        check_ownership(folder)
    owner = str(refusal.value).split(f"{TRUSTED}=")[1].split()[0]
    monkeypatch.setenv(TRUSTED, f"somebody, {owner}")
    check_ownership(folder)


def test_a_link_is_as_foreign_as_whoever_made_it_and_as_what_it_leads_to(
    tmp_path: Path, give_away
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    check_ownership(tmp_path / "link/run")
    give_away(tmp_path / "mine")
    with pytest.raises(UserError, match="belongs to"):
        check_ownership(tmp_path / "link/run")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a link away needs root")
def test_a_strangers_link_to_a_folder_of_mine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    os.lchown(tmp_path / "link", pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(UserError, match="link belongs to nobody"):
        check_ownership(tmp_path / "link/run")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away needs root")
@pytest.mark.parametrize(("users", "known"), [("0 0 4294967295", True), ("1000 1000 1", False)])
def test_in_a_container_that_knows_no_root_the_folders_above_may_be_anyones(
    users: str, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "system/run").mkdir(parents=True)
    number = int(ownership.OVERFLOW.read_text())
    os.chown(tmp_path / "system", number, -1)
    (tmp_path / "uid_map").write_text(f"{users}\n")
    monkeypatch.setattr(ownership, "UID_MAP", tmp_path / "uid_map")
    if known:
        with pytest.raises(UserError, match="system belongs to"):
            check_ownership(tmp_path / "system/run")
    else:
        check_ownership(tmp_path / "system/run")
        (tmp_path / "link").symlink_to(tmp_path / "system")
        os.lchown(tmp_path / "link", number, -1)
        check_ownership(tmp_path / "link/run")
    os.chown(tmp_path / "system/run", number, -1)
    with pytest.raises(UserError, match="belongs to"):
        check_ownership(tmp_path / "system/run")
