"""User code: side effects, failures, and modules that cannot be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sad_hpc.errors import ConfigError, EnvironmentFailure, UserError, described
from sad_hpc.launch import check_machine
from sad_hpc.tasks.environments.task import EnvironmentTask, make_environment
from sad_hpc.user_code import SILENCE_PREFIX, MissingModule, UserCode, Watch, import_user_module
from tests.parallel.test_ranks import BIN
from tests.patience import HUNG

ZOO = """
import os, sys, time
import gymnasium, numpy as np
from gymnasium import spaces

DEED, WHERE = os.environ["DEED"], os.environ["WHERE"]


def deed(here):
    if here == WHERE:
        exec(DEED)


deed("import")


class Zoo(gymnasium.Env):
    observation_space = spaces.Box(-9, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)
    speed = 1.0

    def __init__(self):
        deed("make")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.0
        deed("reset")
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x += self.speed * (2 * action - 1)
        deed("step")
        return np.array([self.x], np.float32), float(action), False, False, {}

    def __reduce_ex__(self, protocol):
        deed("copy")
        return super().__reduce_ex__(protocol)


gymnasium.register("Zoo-v0", Zoo)
"""

CONFIG = """
name: zoo
task: {family: gymnasium, env: "zoo:Zoo-v0", horizon: 5, attributes: {speed: {uniform: [0.5, 2]}}}
data: {tasks: 40, block_tasks: 10, trust_horizon: 2}
rows: [SAD]
seeds: [0]
pretrain: {epochs: 1, holdout_tasks: 4, batch_size: 8}
evaluate: {tasks: 8}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "zoo.py").write_text(ZOO)
    (tmp_path / "zoo.yaml").write_text(CONFIG)
    return tmp_path


def command(
    folder: Path, *words: str, where: str = "", deed: str = "pass"
) -> "subprocess.CompletedProcess[str]":
    """A command of `sad-hpc`, in a folder whose environment does something bad."""
    return subprocess.run(
        [BIN / "sad-hpc", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "WHERE": where, "DEED": deed},
        capture_output=True,
        text=True,
        timeout=HUNG,
    )


@pytest.mark.parametrize(
    ("words", "where", "deed"),
    [
        (("collect", "zoo.yaml"), "import", "sys.exit()"),
        (("launch", "zoo.yaml"), "step", "sys.exit(0)"),
        (("launch", "zoo.yaml"), "make", "os._exit(0)"),
    ],
    ids=str,
)
def test_an_environment_that_ends_the_process_is_a_failure(
    folder: Path, words: tuple[str, ...], where: str, deed: str
):
    done = command(folder, *words, where=where, deed=deed)
    assert done.returncode == 1
    assert "zoo:Zoo-v0" in done.stderr
    assert "ends the process with exit code 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(folder.glob("runs/zoo/data/*/done.json"))


def test_a_copy_that_ends_the_process_is_replaced_by_a_replay(folder: Path):
    done = command(folder, "collect", "zoo.yaml", where="copy", deed="os._exit(0)")
    assert done.returncode == 0, done.stderr
    assert len(list(folder.glob("runs/zoo/data/*/done.json"))) == 1


@pytest.mark.parametrize("deed", ["sys.exit()", "os._exit(0)"])
def test_doctor_misses_an_environment_that_ends_its_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch, deed: str
):
    for name, value in {"PYTHONPATH": str(folder), "WHERE": "reset", "DEED": deed}.items():
        monkeypatch.setenv(name, value)
    verdict, detail = check_machine._config(folder / "zoo.yaml")
    assert verdict == "miss"
    assert "ends the process with exit code 0" in detail


def test_what_an_environment_prints_is_not_the_commands_output(folder: Path):
    shout = "print('a print', flush=True); os.system('echo a child'); os.write(1, b'a write')"
    done = command(folder, "collect", "zoo.yaml", where="import", deed=shout)
    assert (done.returncode, done.stdout) == (0, "")
    assert all(text in done.stderr for text in ("a print", "a child", "a write"))
    done = command(folder, "inspect", "runs/zoo", "--json", where="import", deed=shout)
    assert done.returncode == 0
    assert [split["split"] for split in json.loads(done.stdout)] == ["train", "test"]
    done = command(folder, "verify", "runs/zoo", where="import", deed=shout)
    assert done.returncode == 0
    assert [line.split(":")[1][:4] for line in done.stdout.splitlines()] == [" ok,", " ok,"]


def test_a_changed_working_directory_moves_no_output(folder: Path, tmp_path_factory):
    other = tmp_path_factory.mktemp("elsewhere")
    for where in ("import", "step"):
        deed = f"os.chdir({str(other)!r})"
        runs = f"runs-{where}"
        done = command(folder, "collect", "zoo.yaml", "--runs", runs, where=where, deed=deed)
        assert done.returncode == 0, done.stderr
        assert list(folder.glob(f"{runs}/zoo/data/*/done.json"))
    assert not list(other.iterdir())


class Loud:
    """Whose text is an escape sequence."""

    def __str__(self) -> str:
        return "\x1b[2J\x1b]0;title\x07 one\ntwo\u202e"


def test_messages_of_others_are_one_printable_line():
    text = described(ValueError(Loud()))
    assert text.isprintable()
    assert text == r"ValueError: \x1b[2J\x1b]0;title\x07 one two\u202e"
    assert len(described(ValueError("x" * 10**6))) < 1000


def test_an_error_without_text_is_told_by_its_line():
    try:
        assert not Loud()
    except AssertionError as error:
        error.args = ()
        text = described(error)
    assert text.startswith("AssertionError in test_user_code.py, line ")
    assert text.endswith("(assert not Loud())")


@pytest.mark.parametrize("deed", [sys.exit, lambda: os._exit(0)], ids=["sys.exit", "os._exit"])
def test_a_block_restores_what_it_changed_and_fails_where_it_would_end_the_process(
    deed, tmp_path: Path
):
    folder, output = Path.cwd(), sys.stdout
    with pytest.raises(EnvironmentFailure) as caught, UserCode(lambda: "the zoo"):
        assert sys.stdout is sys.stderr
        os.chdir(tmp_path)
        deed()
    assert str(caught.value) == "the zoo: it ends the process with exit code 0"
    assert Path.cwd() == folder
    assert sys.stdout is output


def test_other_errors_and_ctrl_c_pass_as_they_are():
    for error in (UserError("wrong"), ZeroDivisionError(), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, UserCode(lambda: "the zoo"):
            raise error
        assert caught.value is error


def test_a_child_of_user_code_ends_as_it_likes():
    with UserCode(lambda: "a fork"):
        child = os.fork()
        if child == 0:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_call_without_an_answer_is_reported_ever_more_seldom():
    watch, step = Watch(seconds=60), 1
    with UserCode(lambda: f"Zoo-v0, step {step}"):
        reports = {now: watch.look(now) for now in range(0, 200, 10)}
        step = 2
        assert watch.look(500) is None
        assert watch.look(565) == f"{SILENCE_PREFIX}65 s: Zoo-v0, step 2"
    told = {now: text for now, text in reports.items() if text}
    assert told == {
        60: f"{SILENCE_PREFIX}60 s: Zoo-v0, step 1",
        120: f"{SILENCE_PREFIX}120 s: Zoo-v0, step 1",
    }
    assert watch.look(1000) is None


def test_a_step_that_sleeps_is_reported_while_it_sleeps():
    code = (
        "import time\nfrom sad_hpc import user_code\n"
        "user_code.SILENCE_SECONDS, user_code.LOOK_SECONDS = 0.2, 0.05\n"
        "with user_code.UserCode(lambda: 'Zoo-v0, step 3'): time.sleep(2)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == f"{SILENCE_PREFIX}0 s: Zoo-v0, step 3"


def test_no_report_between_calls_and_where_kernels_are_at_work():
    watch = Watch(seconds=60)
    with UserCode(lambda: "block 3", watched=False):
        assert [watch.look(now) for now in (0, 100)] == [None, None]
        for now in range(0, 1000, 50):  # another call each time
            with UserCode(lambda: "Zoo-v0"):
                assert watch.look(now) is None


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
def module_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("faulty")]:
        del sys.modules[name]


@pytest.mark.parametrize("text", FAULTS)
def test_a_module_that_fails_is_one_line_with_its_file_and_line(text: str, module_folder: Path):
    path = module_folder / "faulty.py"
    path.write_text(text)
    name, line = FAULTS[text]
    with pytest.raises(ConfigError) as caught:
        make_environment(EnvironmentTask("faulty:Own-v0"))
    assert "\n" not in str(caught.value)
    assert f"faulty:Own-v0: cannot import faulty: {name} in {path}, line {line}: " in str(
        caught.value
    )


def test_the_class_of_a_registered_environment_may_be_in_the_faulty_module(module_folder: Path):
    (module_folder / "faulty.py").write_text("x = (\n")
    (module_folder / "faulty_register.py").write_text(
        "import gymnasium\ngymnasium.register('Faulty-v0', 'faulty:Own')\n"
    )
    with pytest.raises(ConfigError, match=r"SyntaxError in .*/faulty\.py, line 1: "):
        make_environment(EnvironmentTask("faulty_register:Faulty-v0"))


def test_only_a_module_that_is_not_there_is_missing(module_folder: Path):
    (module_folder / "faulty.py").write_text("import faulty.part\n")
    with pytest.raises(MissingModule):
        import_user_module("faulty_and_absent")
    with pytest.raises(ConfigError) as caught:
        import_user_module("faulty")
    assert not isinstance(caught.value, MissingModule)


def test_a_command_ends_in_one_line(module_folder: Path):
    (module_folder / "faulty.py").write_text("def f(:\n")
    config = module_folder / "faulty.yaml"
    config.write_text(
        "name: faulty\ntask: {family: gymnasium, env: 'faulty:Own-v0', horizon: 5,\n"
        "  vary: {size: {integers: [1, 9]}}}\ndata: {tasks: 60, trust_horizon: 2}\n"
        "rows: [SAD]\npretrain: {epochs: 1, holdout_tasks: 4, batch_size: 8}\n"
    )
    done = subprocess.run(
        [BIN / "sad-hpc", "collect", config, "--runs", module_folder / "runs"],
        env={"PYTHONPATH": str(module_folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=HUNG,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "faulty.py, line 1: " in done.stderr
