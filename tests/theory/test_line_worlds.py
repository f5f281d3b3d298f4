import json
from pathlib import Path

from sad_hpc.cli import main


def test_the_folder_has_the_papers_verdicts_pictures_and_origin(tmp_path: Path):
    assert main(["theory", "paper", "--results", str(tmp_path)]) == 0
    folder = tmp_path / "theory"
    lines = (folder / "README.md").read_text().splitlines()
    verdicts = {line.split(":")[0]: line.split(" | ")[3] for line in lines if "gamma = " in line
                and line.startswith("|")}  # fmt: skip
    assert verdicts == {
        "| Proposition 1": "holds",
        "| case (a)": "holds",
        "| case (b)": "holds",
        "| case (c)": "fails",
    }
    for name in ("q_tables.png", "td_error.png", "two_rewards.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["commit"] and str(tmp_path) not in json.dumps(provenance)
