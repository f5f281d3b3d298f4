"""Pages that are made from templates/: report.html, and the README of a results folder."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from sad_hpc.storage.files import atomic_path


def write_page(path: Path, template: str, **values: Any) -> None:
    """Fills in a template; what goes into HTML is escaped."""
    environment = Environment(
        loader=PackageLoader("sad_hpc.aggregate"),
        autoescape=lambda name: name is not None and ".html" in name,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    page = environment.get_template(template).render(values)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")  # names that are no UTF-8
