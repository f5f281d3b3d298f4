"""Relative links of the documents lead to existing files and headings."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(ROOT / folder / "README.md" for folder in ("examples", "benchmarks")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_resolves(document: Path):
    assert broken_links(document) == []


@pytest.mark.parametrize(
    ("markdown", "broken"),
    [
        ("[text](other.md)", []),
        ("[text](other.md#a-b--c-1)", []),
        ("[text](#here)", []),
        ("[text](folder)", []),
        ("[text](https://example.org/missing)", []),
        ("`[text](missing.md)`", []),
        ("```\n[text](missing.md)\n```", []),
        ("[text](missing.md)", ["missing.md"]),
        ("![text](missing.png)", ["missing.png"]),
        ('<img src="missing.png">', ["missing.png"]),
        ("[text](other.md#a-b--c-2)", ["other.md#a-b--c-2"]),
        ("[text](#there)", ["#there"]),
        ("[text](../outside.md)", ["../outside.md"]),
    ],
)
def test_broken_links_are_found(markdown: str, broken: list[str], tmp_path: Path):
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "outside.md").touch()
    (root / "other.md").write_text("# A, `b` & *c*\n\n## A, b & c\n")
    (root / "page.md").write_text(f"# Here\n\n{markdown}\n")
    assert broken_links(root / "page.md", root) == broken


def broken_links(document: Path, root: Path = ROOT) -> list[str]:
    """Return the links that name no file within `root`, or no heading of a Markdown file."""
    broken = []
    for link in _links(document):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (document.parent / unquote(parts.path)).resolve() if parts.path else document
        found = target.exists() and target.resolve().is_relative_to(root.resolve())
        if found and parts.fragment and target.suffix == ".md":
            found = parts.fragment in _anchors(target)
        if not found:
            broken.append(link)
    return broken


def _tokens(document: Path) -> Iterator[Token]:
    """Yield the tokens of a Markdown file, those inside paragraphs and headings too."""
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(document.read_text("utf-8")):
        yield token
        yield from token.children or ()


def _links(document: Path) -> Iterator[str]:
    for token in _tokens(document):
        target = token.attrs.get("href") or token.attrs.get("src")
        if target:
            yield str(target)
        elif token.type in ("html_inline", "html_block"):
            yield from re.findall(r"""\b(?:href|src)=["']([^"']+)""", token.content)


def _anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives to a file's headings, and those written in HTML."""
    anchors: set[str] = set()
    repeated: Counter[str] = Counter()
    for opening, heading in itertools.pairwise(_tokens(document)):
        if opening.type == "heading_open":
            words = "".join(part.content for part in heading.children or ())
            anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            anchors.add(f"{anchor}-{repeated[anchor]}" if anchor in repeated else anchor)
            repeated[anchor] += 1
        elif opening.type in ("html_inline", "html_block"):
            anchors.update(re.findall(r"""\b(?:id|name)=["']([^"']+)""", opening.content))
    return anchors
