"""Untrusted results folders: an error in one line, and no files of the reader on the page."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sad_hpc.aggregate.all_results import AllResults
from sad_hpc.aggregate.readme import headline_table
from sad_hpc.aggregate.report import overview
from sad_hpc.cli import main
from sad_hpc.errors import UserError
from tests.patience import HUNG


@pytest.fixture
def theirs(made: Path, tmp_path: Path) -> Path:
    """A results folder of its own to spoil, `results/theirs`."""
    return Path(shutil.copytree(made, tmp_path / "results/theirs"))


def text(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def pipe(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


BAD: list[tuple[str, Callable[[Path], object]]] = [
    ("results.h5", text("results.h5", "")),
    ("results.h5", lambda folder: (folder / "results.h5").write_bytes(b"\xff\x00\n\xfe,")),
    ("results.h5", pipe("results.h5")),
    ("provenance.json", pipe("provenance.json")),
    ("provenance.json", lambda folder: (folder / "provenance.json").unlink()),
    ("provenance.json", text("provenance.json", "{}")),
    ("provenance.json", text("provenance.json", "[" * 10**5)),
    ("config.yaml", pipe("config.yaml")),
    ("config.yaml", lambda folder: (folder / "config.yaml").unlink()),
]


@pytest.mark.parametrize("name, damage", BAD)
def test_a_bad_folder_is_one_line_that_names_its_file(
    theirs: Path, name: str, damage: Callable[[Path], object], capsys: Any, unrendered: None
) -> None:
    damage(theirs)
    signal.alarm(int(HUNG))  # ends the tests where one waits for a pipe
    assert main(["report", "--results", str(theirs.parent)]) == 1
    signal.alarm(0)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sad-hpc: error: ") and str(theirs / name) in line


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.lists(st.none(), max_size=2), st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
)  # fmt: skip


def spoiled(value: Any, data: st.DataObject) -> Any:
    """JSON values of which one, anywhere, is something else."""
    if not isinstance(value, dict | list) or not value or data.draw(st.integers(0, 3)) == 0:
        return data.draw(JUNK)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = data.draw(st.sampled_from(keys))
    if isinstance(value, dict):
        return {**value, key: spoiled(value[key], data)}
    return [*value[:key], spoiled(value[key], data), *value[key + 1 :]]


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_a_wrong_value_is_one_line_or_shown(
    made: Path, theirs: Path, unrendered: None, data: st.DataObject
) -> None:
    origin = spoiled(json.loads((made / "provenance.json").read_text()), data)
    (theirs / "provenance.json").write_text(json.dumps(origin))
    for show in (lambda: headline_table(theirs), lambda: overview(AllResults(theirs.parent))):
        try:
            show()
        except UserError as error:
            assert str(theirs) in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("name", ["offline.png", "config.yaml", "results.h5", "."])
def test_a_link_does_not_bring_the_readers_files_onto_the_page(
    theirs: Path, tmp_path: Path, name: str
) -> None:
    secret = tmp_path / "secret"
    shutil.copytree(theirs, secret)
    for file in ("config.yaml", "offline.png"):
        (secret / file).write_bytes(b"my secret")
    if (theirs / name).is_dir():
        shutil.rmtree(theirs / name)
    else:
        (theirs / name).unlink()
    (theirs / name).symlink_to(secret / name)
    try:
        page = overview(AllResults(theirs.parent)).read_text()
    except UserError as error:
        assert name != "offline.png" and str(theirs / name) in str(error)
    else:
        # A picture is made again from results.h5: the link is replaced, the file stays.
        assert name == "offline.png" and not (theirs / name).is_symlink()
        assert "my secret" not in page
    assert (secret / "offline.png").read_bytes() == b"my secret"


class Links(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "a":
            self.links.append(named["href"] or "")
        if "id" in named:
            self.anchors.append(named["id"] or "")


@pytest.mark.parametrize(
    "name", ["a#b?c", "javascript:alert(1)", "50%20off", "a b", '"><b>', "&lt;", b"caf\xe9", "é"]
)
def test_links_lead_to_the_folder_whatever_its_name(
    theirs: Path, unrendered: None, name: str | bytes
) -> None:
    folder = theirs.parent / os.fsdecode(name)
    theirs.rename(folder)
    found = Links(overview(AllResults(folder.parent)).read_text())
    links = [urlparse(link) for link in found.links]
    files = [os.fsdecode(folder.parent) + "/" + unquote(u.path, errors="surrogateescape")
             for u in links if u.path]  # fmt: skip
    assert sorted(map(Path, files)) == [folder / "results.h5"]
    assert not [u for u in links if u.scheme or u.netloc or u.query or (u.path and u.fragment)]
    assert {unquote(u.fragment) for u in links if not u.path} <= set(found.anchors)
