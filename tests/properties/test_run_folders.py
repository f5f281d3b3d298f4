"""Any JSON in a run's folder: commands work, or report the fault in one line."""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sad_hpc.aggregate.origin import origin
from sad_hpc.aggregate.training import read_finite_epochs
from sad_hpc.cli import main
from sad_hpc.commands import report_error
from sad_hpc.errors import UserError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.launch.graph import graph
from sad_hpc.launch.records import JobRecord, save_records
from sad_hpc.launch.slurm import ANSWER
from sad_hpc.model.context import Inputs
from sad_hpc.model.transformer import Transformer
from sad_hpc.model.weights import WEIGHTS, save_weights
from sad_hpc.storage.json_files import sealed, write_json
from sad_hpc.storage.lock import HOLDER, Holder
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import METRICS
from sad_hpc.tasks.base import make_family
from tests.conftest import TINY

pytestmark = pytest.mark.faults

OVERRIDES = ["rows=[SAD]", "seeds=[0]", "pretrain.kernel=torch"]


@pytest.fixture(scope="module")
def run(tiny_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One whose stages are complete, but for the tables, which a job is making."""
    run = Run(load_experiment(TINY, OVERRIDES), tmp_path_factory.mktemp("runs"))
    run.prepare(["sad-hpc", "launch"])
    shutil.copytree(tiny_run.path / "data", run.path / "data")
    model, result = run.checkpoint("SAD", 0), run.evaluation("SAD", 0)
    model.prepare({})
    transformer = Transformer(
        run.experiment.model, Inputs.of_family(make_family(run.experiment.task))
    )
    signature = run.experiment.pretrain_signature("SAD", 0)
    checksum = save_weights(model.path / WEIGHTS, transformer.state_dict(), signature)
    line = {"epoch": 1, "step": 3, "holdout_loss": 1.5, "holdout_accuracy": 0.5}
    (model.path / METRICS).write_text(2 * (json.dumps(line) + "\n"))
    model.complete(outputs=[WEIGHTS], checksum=checksum, ranks=1, precision="fp32", **line)
    result.prepare({})
    result.complete()
    log = run.logs / "1_0_log.out"
    log.parent.mkdir(exist_ok=True)
    log.write_text("begun\n")
    steps, now = graph(run), time.time()
    save_records(run, {s.title: JobRecord("1", "slurm", now, str(log), "node") for s in steps})
    write_json(run.path / ANSWER, {"asked": now, "jobs": {"1": {"state": "RUNNING"}}})
    run.aggregate().path.mkdir(parents=True)
    run.aggregate().heartbeat(1, 3, "steps")
    return run


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 10**30, 10**400, 0.5, 1e308, -1e308, math.nan, math.inf]),
    st.sampled_from(["", "x", "\0", "\ud800", "\n", "../..", "/", "7", "x" * 5000]),
    st.sampled_from([[], {}, [[]], [{}], {"": {}}, [None], {"x": None}]),
    st.builds(lambda depth: nested(depth), st.sampled_from([5, 70, 900])),
    st.recursive(
        st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5
    ),
)
TORN = st.sampled_from(
    [b"", b"null", b"[" * 10**5, b'{"a":' * 10**5, b"\xff\xfe", b"[]", b"7", b'"x"', b"9" * 5000]
)


def nested(depth: int) -> Any:
    """Lists within each other."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    for key, each in inner:
        yield value, key
        yield from places(each)


def spoiled(content: bytes, data: st.DataObject) -> bytes:
    """The content of a JSON file with another value at some place, under a seal that is right."""
    value = json.loads(content)
    found = list(places(value))
    if not found or data.draw(st.integers(0, 9)) == 0:
        return data.draw(TORN)
    holder, key = data.draw(st.sampled_from(found))
    if isinstance(holder, dict) and data.draw(st.booleans()):
        del holder[key]
    else:
        holder[key] = data.draw(JUNK)
    if isinstance(value, dict) and "seal" in value:
        value = sealed({key: each for key, each in value.items() if key != "seal"})
    return json.dumps(value).encode()


def sources(run: Run) -> int:
    """Read the JSON files that `aggregate` reads, without drawing anything."""
    try:
        origin(run, [("SAD", 0)])
        read_finite_epochs(run.checkpoint("SAD", 0).path)
    except UserError as error:
        report_error(error, debug=False)
        return 1
    return 0


def commands(run: Run, folder: Path) -> dict[str, Callable[[], int]]:
    """Return the commands that read a run, by name."""
    weights = ["--row", "SAD", "--seed", "0", "--weights", str(folder / "policy")]
    return {
        "status": lambda: main(["status", str(run.path)]),
        "inspect": lambda: main(["inspect", str(run.path), "--json"]),
        "verify": lambda: main(["verify", str(run.path)]),
        "export": lambda: main(["export", str(run.path), *weights]),
        "aggregate": lambda: sources(run),
    }


KINDS = {
    "runs/tiny/config.json": ["status", "export"],
    "runs/tiny/provenance.json": ["aggregate"],
    "runs/tiny/jobs.json": ["status"],
    "runs/tiny/.slurm.json": ["status"],
    "aggregate/progress.json": ["status"],
    "collect/train/manifest.json": ["inspect", "verify"],
    "collect/done.json": ["status", "aggregate"],
    "pretrain/done.json": ["status", "export", "aggregate"],
    "pretrain/provenance.json": ["aggregate"],
    "pretrain/metrics.jsonl": ["export", "aggregate"],
    "evaluate/done.json": ["status", "aggregate"],
}
"""Files, and the commands that read them."""


def place(run: Run, kind: str) -> Path:
    """The path of one of KINDS."""
    folders = {
        "runs": run.runs,
        "collect": run.data().path,
        "pretrain": run.checkpoint("SAD", 0).path,
        "evaluate": run.evaluation("SAD", 0).path,
        "aggregate": run.aggregate().path,
    }
    stage, _, name = kind.partition("/")
    return folders[stage] / name


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_json_is_taken_or_refused_in_a_line(
    run: Run, kind: str, data: st.DataObject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place(run, kind)
    content = path.read_bytes()
    lines = content.splitlines(keepends=True) if path.suffix == ".jsonl" else [content]
    command = data.draw(st.sampled_from(KINDS[kind]))
    wrong = spoiled(lines[-1], data)
    try:
        path.write_bytes(b"".join([*lines[:-1], wrong]))
        capsys.readouterr()
        code = commands(run, tmp_path)[command]()
    finally:
        path.write_bytes(content)
        shutil.rmtree(tmp_path / "policy", ignore_errors=True)
    said = capsys.readouterr().err
    assert "Traceback" not in said, said
    errors = said.splitlines()
    assert all(line.startswith("sad-hpc: error: ") for line in errors), said
    assert code == 0 or errors or command == "status"


def test_a_holder_that_says_nothing_is_another_process(tmp_path: Path) -> None:
    for content in (b"[1]", b'{"pid": {}}', b"[" * 10**5, b'{"host": 1}', b"\0"):
        (tmp_path / HOLDER).write_bytes(content)
        assert Holder.of(tmp_path) == "another process"
