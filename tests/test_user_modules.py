"""User modules that cannot be imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from sad_hpc.errors import ConfigError
from sad_hpc.tasks.environments.task import make_environment
from sad_hpc.user_modules import MissingModule, import_user_module
from tests.parallel.test_ranks import BIN
from tests.patience import HUNG

FAULTS = {
    "def f(:\n    pass\n": ("SyntaxError", 1),
    "x = 1\n  y = 2\n": ("IndentationError", 2),
    "x = 1\n\nprint(unknown)\n": ("NameError", 3),
    "import json\n\njson.loads('{')\n": ("JSONDecodeError", 3),
    "import not_there_at_all\n": ("ModuleNotFoundError", 1),
    "import sys\nsys.exit('no licence\\nfound')\n": ("SystemExit", 2),
    "assert False\n": ("AssertionError", 1),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("faulty")]:
        del sys.modules[name]


@pytest.mark.parametrize("text", FAULTS)
def test_a_module_that_fails_is_one_line_with_its_file_and_line(text: str, folder: Path):
    path = folder / "faulty.py"
    path.write_text(text)
    name, line = FAULTS[text]
    with pytest.raises(ConfigError) as caught:
        make_environment("faulty:Own-v0")
    assert "\n" not in str(caught.value)
    assert f"faulty:Own-v0: cannot import faulty: {name} in {path}, line {line}: " in str(
        caught.value
    )


def test_the_class_of_a_registered_environment_may_be_in_the_faulty_module(folder: Path):
    (folder / "faulty.py").write_text("x = (\n")
    (folder / "faulty_register.py").write_text(
        "import gymnasium\ngymnasium.register('Faulty-v0', 'faulty:Own')\n"
    )
    with pytest.raises(ConfigError, match=r"SyntaxError in .*/faulty\.py, line 1: "):
        make_environment("faulty_register:Faulty-v0")


def test_only_a_module_that_is_not_there_is_missing(folder: Path):
    (folder / "faulty.py").write_text("import faulty.part\n")
    with pytest.raises(MissingModule):
        import_user_module("faulty_and_absent")
    with pytest.raises(ConfigError) as caught:
        import_user_module("faulty")
    assert not isinstance(caught.value, MissingModule)


def test_a_command_ends_in_one_line(folder: Path):
    (folder / "faulty.py").write_text("def f(:\n")
    config = folder / "faulty.yaml"
    config.write_text(
        "name: faulty\ntask: {family: gymnasium, env: 'faulty:Own-v0', horizon: 5,\n"
        "  vary: {size: {integers: [1, 9]}}}\ndata: {tasks: 60, trust_horizon: 2}\n"
        "rows: [SAD]\npretrain: {epochs: 1, holdout_tasks: 4, batch_size: 8}\n"
    )
    done = subprocess.run(
        [BIN / "sad-hpc", "collect", config, "--runs", folder / "runs"],
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=HUNG,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "faulty.py, line 1: " in done.stderr
