"""MkDocs hook: the site mirrors the repository, so that relative links mean the same in both.

Pages are the Markdown files named below. Each file of the repository that a page links to, such as
a figure or a config, is copied into the site at its own path.
"""

import re
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "results/**/*.md",
         "examples/README.md", "benchmarks/*.md")  # fmt: skip
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)[^)#\s]+")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the theme's files, the pages, and the files that pages link to."""
    pages = {page for pattern in PAGES for page in ROOT.glob(pattern)}
    linked = {target for page in pages for target in _targets(page) if target.is_file()}
    mirrored = Files([file for file in files if file.src_dir != config.docs_dir])
    for path in sorted(pages | linked):
        source = str(path.relative_to(ROOT))
        mirrored.append(File.generated(config, source, abs_src_path=str(path)))
    return mirrored


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point a link to a folder at the folder's README, or at the folder's name if it has none."""
    folder = (ROOT / page.file.src_uri).parent

    def resolved(match: re.Match[str]) -> str:
        target = folder / unquote(match[0])
        if not target.is_dir():
            return match[0]
        return f"{match[0].rstrip('/')}/README.md" if (target / "README.md").is_file() else "#"

    return LINK.sub(resolved, markdown)


def _targets(page: Path) -> set[Path]:
    """Return the paths inside the repository that a page's links name."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    paths = {(page.parent / unquote(link)).resolve() for link in LINK.findall(text)}
    return {path for path in paths if path.is_relative_to(ROOT)}
