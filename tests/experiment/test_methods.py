"""Methods of other packages: entry points, and what is refused."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.method import Method
from sad_hpc.experiment.methods import BUILT_IN, GROUP, METHODS, with_installed
from tests.conftest import ROOT, TINY

OWN = Method("SAD on episodes", "sad_on_episodes", "#56B4E9", "episodes", "labels/sad")
NOT_A_METHOD = "SAD"


def installed(value: str) -> list[EntryPoint]:
    return [EntryPoint("mine", value, GROUP)]


def test_a_method_of_another_package_follows_the_built_in_ones():
    found = with_installed(BUILT_IN, installed(f"{__name__}:OWN"))
    assert list(found) == [*BUILT_IN, "SAD on episodes"] and found["SAD on episodes"] is OWN
    assert list(METHODS)[: len(BUILT_IN)] == list(BUILT_IN)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("tests.nowhere:OWN", "cannot import"),
        (f"{__name__}:NOTHING", "has no attribute 'NOTHING'"),
        (f"{__name__}:NOT_A_METHOD", "is of type str"),
    ],
)
def test_an_entry_point_that_is_no_method_is_named(value: str, words: str):
    with pytest.raises(ConfigError, match=rf"entry point mine of {GROUP}: no `Method` .*{words}"):
        with_installed(BUILT_IN, installed(value))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "SAD+"}, "name 'SAD\\+'"),
        ({"slug": "../sad"}, "slug '../sad'"),
        ({"context": "histories"}, "none of transitions, episodes"),
        ({"name": "DIT"}, "that of DIT"),
        ({"slug": "dit"}, "that of DIT"),
    ],
)
def test_a_record_that_would_break_names_or_files_is_refused(
    changes: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(f"{__name__}.OWN", replace(OWN, **changes))
    with pytest.raises(ConfigError, match=words):
        with_installed(BUILT_IN, installed(f"{__name__}:OWN"))


def test_a_method_a_model_and_a_loss_of_installed_packages_are_trained(tmp_path: Path):
    (tmp_path / "my_methods.py").write_text(
        "from sad_hpc.experiment.method import Method\n"
        'ON = Method("SAD on episodes", "sad_on_episodes", "#56B4E9", "episodes", "labels/sad")\n'
    )
    package = tmp_path / "my_methods-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: my_methods\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        f"[{GROUP}]\non = my_methods:ON\n"
        "[sad_hpc.models]\ndeep_set = set_model:DeepSet\n"
        "[sad_hpc.losses]\nsmoothed = set_model:smoothed\n"
    )
    folders = (tmp_path, ROOT / "examples/set_model")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    row = ["--row", "SAD on episodes", "--seed", "0"]
    for command in (["collect"], ["pretrain", *row], ["evaluate", *row]):
        words = [sys.executable, "-m", "sad_hpc.cli", command[0], str(TINY), *command[1:]]
        words += ["rows=[SAD on episodes]", "--runs", "runs"]
        words += ["model.architecture=deep_set", "pretrain.loss=smoothed"]
        ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
    (folder,) = (tmp_path / "runs").glob("*/checkpoints/sad_on_episodes-seed0-*")
    weights = torch.load(folder / "weights.pt", weights_only=True)["state"]
    assert (folder / "done.json").exists() and "embed.0.weight" in weights
