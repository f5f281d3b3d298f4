"""Pages made from templates/: report.html, the index, and the README of a results folder."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from sad_hpc.aggregate.markdown import Markdown, code, code_block, markdown
from sad_hpc.storage.files import atomic_path


def write_page(path: Path, template: str, **values: Any) -> None:
    """Fill in a template; values are escaped for its format, HTML or Markdown."""
    is_html = ".html" in template
    environment = Environment(
        loader=PackageLoader("sad_hpc.aggregate"),
        autoescape=is_html,
        finalize=None if is_html else markdown,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"code": code, "code_block": code_block, "as_markdown": Markdown}
    page = environment.get_template(template).render(values)
    with atomic_path(path) as temporary:
        temporary.write_text(
            page, encoding="utf-8", errors="replace"
        )  # file names may be any bytes
