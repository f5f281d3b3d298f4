"""Paths and copies of configs/ and slurm/, in a repository or an installed package."""

from pathlib import Path

from sad_hpc.errors import UserError
from sad_hpc.storage.files import write_error

SHIPPED = Path(__file__).parent
CONFIGS, SLURM = ((SHIPPED / name).resolve() for name in ("configs", "slurm"))


def copy_shipped(folder: Path) -> list[Path]:
    """Copy configs/ and slurm/ to a folder.

    Existing files of the same content are kept.

    Returns:
        the files that were written.

    Raises:
        UserError: a file of the same name has other content, or the folder cannot be written; no
            existing file is changed.
    """
    contents = {
        folder / source.name / path.relative_to(source): path.read_bytes()
        for source in (CONFIGS, SLURM)
        for path in sorted(source.rglob("*"))
        if path.is_file() and path.suffix in (".yaml", ".sh")
    }
    try:
        missing = [path for path in contents if not path.exists()]
        others = [p for p in contents if p not in missing and p.read_bytes() != contents[p]]
        if others:
            raise UserError(
                f"{others[0]} has other content{_and_more(others)}: choose another folder "
                "(`sad-hpc init FOLDER`), or move it away"
            )
        for path in missing:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents[path])
            if path.suffix == ".sh":
                path.chmod(path.stat().st_mode | 0o111)
    except OSError as error:
        raise write_error(folder, error) from error
    return missing


def _and_more(files: list[Path]) -> str:
    return f", and {len(files) - 1} more" if len(files) > 1 else ""
