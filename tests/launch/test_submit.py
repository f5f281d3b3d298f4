"""Submission and recording, with a Slurm made of shell scripts."""

import errno
import json
import os
import pickle
import re
from pathlib import Path

import pytest

from sad_hpc.aggregate.origin import origin
from sad_hpc.errors import ConfigError, UserError
from sad_hpc.experiment.rows import RowConfig
from sad_hpc.launch.cancel import cancel_jobs
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.environment import submission_environment
from sad_hpc.launch.executor import run_tag
from sad_hpc.launch.graph import graph
from sad_hpc.launch.pipeline import launch
from sad_hpc.launch.records import load_records
from sad_hpc.launch.slurm import ask
from sad_hpc.storage.json_files import write_json
from sad_hpc.storage.lock import held
from sad_hpc.storage.run import Run
from tests.launch.conftest import FakeSlurm, complete, steps_of

KILL = "slurmstepd-node1: error: Detected 1 oom_kill event in StepId=101.0\n"


def submit(run: Run, *overrides: str) -> int:
    cluster = load_cluster("slurm", list(overrides))
    return launch(run, Path("x.yaml"), [], Path("results"), cluster, dry_run=False, wait=False)


def queue_everything(run: Run, slurm: FakeSlurm) -> None:
    jobs = {f"j{record.id}": "PENDING" for record in load_records(run).values()}
    slurm.queue(comment=run_tag(run), **jobs)


def test_ids_are_recorded_and_used(run: Run, slurm: FakeSlurm) -> None:
    assert submit(run) == 0
    records = load_records(run)
    assert [records[step.title].id for step in graph(run)] == [
        *("100", "101", "102", "103", "104"),
        *("105_0", "105_1", "105_2", "105_3", "106"),
    ]
    assert "afterany:101:102:103:104" in slurm.scripts()["105"]
    assert "afterok:105_0:105_1:105_2:105_3" in slurm.scripts()["106"]
    assert records[graph(run)[0].title].log == str(run.logs / "collect/100_0_log.out")


def test_jobs_are_pickled_with_the_resolved_experiment(run: Run, slurm: FakeSlurm) -> None:
    submit(run)
    job = pickle.loads((run.logs / "evaluate/105_2_submitted.pkl").read_bytes()).function
    assert job.title == steps_of(run, "evaluate")[2].title
    assert job.experiment == run.experiment.model_dump(mode="json")
    assert Path(job.runs).is_absolute() and Path(job.results).is_absolute()


def test_the_job_of_the_tables_knows_what_it_may_replace(run: Run, slurm: FakeSlurm) -> None:
    cluster = load_cluster("slurm", [])
    for replace in (False, True):
        launch(run, Path("x"), [], Path("results"), cluster, False, False, replace=replace)
        (name,) = run.logs.glob("aggregate/*_submitted.pkl")
        assert pickle.loads(name.read_bytes()).function.replace == replace
        name.unlink()


def test_queued_jobs_are_not_submitted_again(run: Run, slurm: FakeSlurm) -> None:
    submit(run)
    queue_everything(run, slurm)
    before = load_records(run)
    submit(run)
    assert load_records(run) == before and len(slurm.scripts()) == 7
    assert slurm.cancelled == []


def test_resume_depends_on_what_still_runs(run: Run, slurm: FakeSlurm) -> None:
    submit(run)
    complete(*steps_of(run, "collect"), *steps_of(run, "pretrain"))
    complete(*steps_of(run, "evaluate")[:2])
    # Of the evaluations one still runs and one has failed; aggregate was ended with it.
    states = {"j105_2": "RUNNING", "j105_3": "FAILED", "j106": "CANCELLED"}
    slurm.queue(comment=run_tag(run), **states)
    submit(run)
    assert sorted(slurm.scripts())[7:] == ["107", "108"]
    assert "--array" not in slurm.scripts()["107"]
    assert "--dependency=afterok:105_2:107\n" in slurm.scripts()["108"]


def test_jobs_that_wait_in_vain_are_cancelled(run: Run, slurm: FakeSlurm) -> None:
    submit(run)
    complete(*steps_of(run, "collect"))
    queue_everything(run, slurm)
    running = {f"j{id}": "RUNNING" for id in (102, 103, 104)}
    slurm.queue(comment=run_tag(run), **running, j105_0="PENDING", j106="PENDING")
    submit(run)
    assert {"105_0", "106"} <= set(slurm.cancelled)
    assert not {"102", "103", "104"} & set(slurm.cancelled)


def test_refusal_is_one_line_and_keeps_what_was_submitted(run: Run, slurm: FakeSlurm) -> None:
    slurm.refuse()
    with pytest.raises(UserError, match=r"refused collect: invalid partition .*cluster\.partition"):
        submit(run)
    assert load_records(run) == {}


def test_without_slurm(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"--cluster local.*dev_cluster\.sh up"):
        submit(run)


def test_one_launcher_at_a_time(run: Run, slurm: FakeSlurm) -> None:
    with held(run.path), pytest.raises(UserError, match=rf"made-up is in use by .* {os.getpid()} "):
        submit(run)
    assert not (run.path / "config.json").exists(), "the second one has left its config behind"


def test_jobs_of_a_launcher_that_died_are_cancelled(run: Run, slurm: FakeSlurm) -> None:
    submit(run)
    queue_everything(run, slurm)
    records = json.loads((run.path / "jobs.json").read_text())
    lost = records.pop(graph(run)[0].title)["id"]  # it died before it had written this
    (run.path / "jobs.json").write_text(json.dumps(records))
    slurm.queue(comment=run_tag(run), **{f"j{id}": "PENDING" for id in (lost, "102", "777")})
    submit(run)
    assert {lost, "777"} <= set(slurm.cancelled)
    assert f"--comment={run_tag(run)}\n" in slurm.scripts()["107"]
    slurm.queue(comment="another's", j888="PENDING")
    submit(run)
    assert "888" not in slurm.cancelled


def test_tables_are_made_again_when_an_evaluation_was(run: Run, slurm: FakeSlurm) -> None:
    complete(*graph(run))
    made = origin(run, run.experiment.elements)
    write_json(run.runs.parent / "results/made-up/provenance.json", made)
    again = steps_of(run, "evaluate")[2].folder

    def submitted() -> list[str]:
        steps = graph(run)
        before = set(load_records(run))
        launch(run, Path("x.yaml"), [], run.runs.parent / "results", load_cluster("slurm", []),
               dry_run=False, wait=False)  # fmt: skip
        new = set(load_records(run)) - before
        (run.path / "jobs.json").unlink(missing_ok=True)
        return [step.stage for step in steps if step.title in new]

    assert submitted() == []
    (again.path / "done.json").unlink()
    assert submitted() == ["evaluate", "aggregate"]
    complete(*graph(run))  # by hand: the tables are still of the evaluation before
    assert submitted() == ["aggregate"]


def test_no_job_is_cancelled_because_the_disk_does_not_answer(
    run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(run)
    queue_everything(run, slurm)

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("sad_hpc.launch.records.parse_json", fail)
    with pytest.raises(
        UserError, match=r"cannot read .*jobs\.json: Input/output error; .*try again"
    ):
        submit(run)
    assert slurm.cancelled == [] and len(slurm.scripts()) == 7


@pytest.mark.parametrize("name", ["a\ntouch evil", "100%j", "a\rb"])
def test_a_folder_that_sbatch_would_misread_is_refused(
    run: Run, slurm: FakeSlurm, name: str
) -> None:
    with pytest.raises(UserError, match="choose another --runs folder"):
        submit(Run(run.experiment, run.runs / name))
    assert slurm.scripts() == {}


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_that_another_user_could_change_is_left_alone(
    run: Run, slurm: FakeSlurm, mode: int
) -> None:
    """A user who may write there could replace a job's pickle."""
    run.path.mkdir(parents=True)
    run.path.chmod(mode)
    with pytest.raises(UserError, match=r"made-up is writable by everyone .*--runs"):
        submit(run)
    with pytest.raises(UserError, match="writable by everyone"):
        launch(run, Path("x"), [], Path("r"), load_cluster("slurm", []), dry_run=True, wait=False)
    assert slurm.scripts() == {}
    assert not [path for path in run.path.rglob("*") if path.is_file()]
    run.path.chmod(0o755)
    run.runs.chmod(0o1777)  # as shared folders are
    assert submit(run) == 0


def test_a_job_around_the_launcher_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("SBATCH_ACCOUNT", "lab")
    monkeypatch.setenv("SLURM_JWT", "token")
    monkeypatch.delenv("LP_NUM_THREADS", raising=False)
    with submission_environment({"LP_NUM_THREADS": "1"}):
        assert "SLURM_JOB_ID" not in os.environ
        assert os.environ["SLURM_CONF"] == "/etc/slurm.conf"
        assert os.environ["SLURM_JWT"] == "token"
        assert os.environ["SBATCH_ACCOUNT"] == "lab" and os.environ["LP_NUM_THREADS"] == "1"
    assert os.environ["SLURM_JOB_ID"] == "7" and "LP_NUM_THREADS" not in os.environ


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [((), {"ACCOUNT", "CONSTRAINT", "EXPORT", "GRES", "MEM_PER_NODE"}),
     (("account=lab", "collect.memory_gb=1"), {"CONSTRAINT", "EXPORT", "GRES"}),
     (("collect.gpus=1",), {"ACCOUNT", "CONSTRAINT", "EXPORT", "MEM_PER_NODE"}),
     (("sbatch.constraint=haswell",), {"ACCOUNT", "EXPORT", "GRES", "MEM_PER_NODE"})],
)  # fmt: skip
def test_sbatch_reads_no_defaults_that_would_go_before_the_script(
    run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...],
    kept: set[str],
) -> None:  # fmt: skip
    for name in ("ACCOUNT", "CONSTRAINT", "EXPORT", "MEM_PER_NODE", "TIMELIMIT", "SIGNAL",
                 "ARRAY_INX", "REQUEUE", "NO_REQUEUE", "OPEN_MODE", "WAIT", "GRES"):  # fmt: skip
        monkeypatch.setenv(f"SBATCH_{name}", "1")
    slurm._program("sbatch", f"env > {slurm.folder}/env; exit 1")
    with pytest.raises(UserError, match="Slurm refused collect"):
        submit(run, "collect.memory_gb=null", *overrides)
    seen = (slurm.folder / "env").read_text().splitlines()
    assert {line[7:-2] for line in seen if line.startswith("SBATCH_")} == kept


def test_jobs_go_where_squeue_looks_for_them(
    run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for option in ("cluster", "clusters"):
        with pytest.raises(ConfigError, match=f"'{option}' is not supported here: .*`clusters`"):
            submit(run, f"sbatch.{option}=other")
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    monkeypatch.setenv("SBATCH_CLUSTERS", "other")
    monkeypatch.setenv("SCANCEL_STATE", "PENDING")
    foreign = "env | grep -E '^(SLURM|SBATCH)_CLUSTERS'"
    slurm._program("sbatch", f'echo "they say $({foreign})" >&2; exit 1')
    with pytest.raises(UserError, match="refused collect: they say;"):
        submit(run)
    slurm._program("scancel", f"env > {slurm.folder}/seen; echo > {slurm.folder}/queue")
    slurm.queue(comment=run_tag(run), j777="PENDING")
    with pytest.raises(UserError, match="refused"):
        submit(run)
    assert not re.search("^(SCANCEL|SLURM_CLUSTERS)", (slurm.folder / "seen").read_text(), re.M)


def test_a_named_cluster_gets_all_jobs_and_all_questions(run: Run, slurm: FakeSlurm) -> None:
    asked = slurm.folder / "asked"
    slurm._program("squeue", f'echo "$@" >> {asked}; echo "CLUSTER: far"; cat {slurm.folder}/queue')
    submit(run, "clusters=far")
    assert all("#SBATCH --clusters=far" in text for text in slurm.scripts().values())
    assert {record.cluster for record in load_records(run).values()} == {"far"}
    queue_everything(run, slurm)
    submit(run, "clusters=far", "partition=small")
    assert slurm.cancelled.count("--clusters=far") == 1 and len(slurm.cancelled) > 1
    queue_everything(run, slurm)
    assert ask(run, graph(run), load_records(run)).jobs
    assert all(line.startswith("--clusters=far ") for line in asked.read_text().splitlines())


@pytest.mark.parametrize("cluster", [None, "far"])
def test_a_run_is_cancelled_and_goes_on(
    cluster: str | None, run: Run, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(run, *([f"clusters={cluster}"] if cluster else []))
    queue_everything(run, slurm)
    jobs = set(slurm.scripts())
    with (slurm.folder / "queue").open("a") as queue:
        queue.write("7|RUNNING|N/A|N/A|another run|None\n")
    cancel_jobs(run)
    assert {word.partition("_")[0] for word in slurm.cancelled if word[0] != "-"} == jobs
    assert "launch again to continue" in capsys.readouterr().out
    cancel_jobs(run)
    assert "has no jobs" in capsys.readouterr().out
    submit(run)
    assert set(slurm.scripts()) > jobs


def test_a_run_with_jobs_does_not_continue_on_another_cluster(run: Run, slurm: FakeSlurm) -> None:
    submit(run, "clusters=far")
    queue_everything(run, slurm)
    with pytest.raises(UserError, match=r"clusters=far, or `sad-hpc cancel "):
        submit(run)
    slurm.queue()
    submit(run)
    assert {record.cluster for record in load_records(run).values()} == {None}
    with pytest.raises(ConfigError, match="clusters: String should match"):
        submit(run, "clusters='far,near'")


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
@pytest.mark.parametrize("before", ["alpha", "beta"])
def test_another_job_with_a_recorded_id_is_left_alone(
    run: Run, slurm: FakeSlurm, before: str, state: str
) -> None:
    """Another cluster has the same ids, and so has a Slurm that was installed again."""
    slurm._program("squeue", f'case "$*" in *=beta*) cat {slurm.folder}/queue ;; esac')
    submit(run, f"clusters={before}")
    slurm.queue(comment="another's", j100=state, j105_1=state)
    submit(run, "clusters=beta", "partition=other")
    assert slurm.cancelled == []
    records = load_records(run)
    assert len(slurm.scripts()) == 14 and {each.cluster for each in records.values()} == {"beta"}


def test_an_unrecorded_job_may_have_an_id_of_another_cluster(run: Run, slurm: FakeSlurm) -> None:
    slurm._program("squeue", f'case "$*" in *=beta*) cat {slurm.folder}/queue ;; esac')
    submit(run, "clusters=alpha")
    slurm.queue(comment=run_tag(run), j100="RUNNING")
    submit(run, "clusters=beta")
    assert slurm.cancelled == ["--clusters=beta", "100"]
    assert len(slurm.scripts()) == 14


def test_waiting_jobs_are_replaced_when_their_settings_change(
    run: Run, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    complete(*steps_of(run, "collect"))
    submit(run, "partition=small")
    before = load_records(run)
    first, second, *_ = [before[step.title].id for step in steps_of(run, "pretrain")]
    queue_everything(run, slurm)
    lines = (slurm.folder / "queue").read_text()
    lines = lines.replace(f"{first}|PENDING", f"{first}|RUNNING")
    (slurm.folder / "queue").write_text(
        lines.replace(f"{second}|PENDING|N/A|N/A|{run_tag(run)}|None",
                      f"{second}|PENDING|N/A|N/A|{run_tag(run)}|PartitionConfig")
    )  # fmt: skip
    capsys.readouterr()
    submit(run, "partition=small", "array_parallelism=1")
    assert load_records(run) == before and slurm.cancelled == []
    assert f"already has job {second}, blocked (PartitionConfig)" in capsys.readouterr().out
    submit(run, "partition=large")
    after = load_records(run)
    kept = [title for title in before if after[title] == before[title]]
    assert [before[title].id for title in kept] == [first], "it runs"
    assert set(slurm.cancelled) == {record.id for record in before.values()} - {first}
    assert "--partition=large\n" in slurm.scripts()[after[steps_of(run, "pretrain")[1].title].id]


@pytest.mark.parametrize(
    ("answer", "parts"),
    [("MaxArraySize            = 3", 2), ("SchedulerParameters = a,max_array_tasks=1,b=5", 4),
     ("MaxArraySize            = 0", 4), ("MaxArraySize            = 1001", 1), ("", 1)],
)  # fmt: skip
def test_arrays_are_no_larger_than_slurm_takes(
    run: Run, slurm: FakeSlurm, answer: str, parts: int
) -> None:
    slurm._program("scontrol", f"test '{answer}' || exit 1; echo '{answer}'")
    complete(*steps_of(run, "collect"), *steps_of(run, "pretrain"))
    submit(run)
    assert len(slurm.scripts()) == parts + 1
    ids = [load_records(run)[step.title].id for step in steps_of(run, "evaluate")]
    assert len({id.partition("_")[0] for id in ids}) == parts
    assert f"afterok:{':'.join(ids)}\n" in slurm.scripts()[str(100 + parts)]


def test_an_array_may_have_several_ranks_each(run: Run, slurm: FakeSlurm) -> None:
    other = RowConfig(method="SAD", name="SAD, N = 5", set={"data.trust_horizon": 5})
    rows = [*run.experiment.rows, other]
    run = Run(run.experiment.model_copy(update={"rows": rows}), run.runs)
    assert submit(run, "collect.ranks=3") == 0
    ids = [load_records(run)[step.title].id for step in steps_of(run, "collect")]
    assert ids == ["100_0", "100_1"]
    script = slurm.scripts()["100"]
    assert "#SBATCH --ntasks=3\n" in script and "#SBATCH --nodes=1-3\n" in script


def test_a_full_queue_is_named(run: Run, slurm: FakeSlurm) -> None:
    why = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    slurm._program("sbatch", f'echo "sbatch: error: {why}" >&2; exit 1')
    with pytest.raises(UserError, match=r"MaxSubmitJobs.*launch again when some jobs have ended"):
        submit(run)


def test_a_job_killed_for_memory_gets_twice_as_much(run: Run, slurm: FakeSlurm) -> None:
    submit(run, "pretrain.memory_gb=2")
    complete(*steps_of(run, "collect"))
    for wanted, kills in ((4, 1), (8, 2), (8, 3)):
        record = load_records(run)[steps_of(run, "pretrain")[0].title]
        Path(record.log).write_text(KILL)
        submit(run, "pretrain.memory_gb=2")
        records = [load_records(run)[step.title] for step in steps_of(run, "pretrain")]
        assert (records[0].memory_gb, records[0].kills) == (wanted, kills)
        assert all(other.memory_gb is None for other in records[1:])
        assert f"--mem-per-cpu={1024 * wanted}M" in slurm.scripts()[records[0].id]
    slurm._program("sacct", f'echo "$@" >> {slurm.folder}/asked')
    submit(run, "pretrain.memory_gb=2")  # the last job has ended for another reason
    again = load_records(run)[steps_of(run, "pretrain")[0].title]
    assert (again.memory_gb, again.kills) == (8, 3)
    assert f"--mem-per-cpu={1024 * 8}M" in slurm.scripts()[again.id]
    told = (slurm.folder / "asked").read_text()
    assert told.count("State") == 1, "sacct is asked once for all jobs"
    submit(run, "pretrain.memory_gb=3")
    assert load_records(run)[steps_of(run, "pretrain")[0].title].memory_gb is None


def test_a_gpu_without_memory_is_no_kill_of_slurms(run: Run, slurm: FakeSlurm) -> None:
    submit(run, "pretrain.memory_gb=2")
    complete(*steps_of(run, "collect"))
    title = steps_of(run, "pretrain")[0].title
    words = (
        "torch.OutOfMemoryError: CUDA out of memory\nsrun: error: node1: task 0: Exited with 1\n"
    )
    Path(load_records(run)[title].log).write_text(words)
    submit(run, "pretrain.memory_gb=2")
    assert load_records(run)[title].memory_gb is None


@pytest.mark.parametrize(
    ("answer", "had"),
    [("8G|4", 2), ("8192M|4", 2), ("2Gc|4", 2), ("8Gn|4", 2), ("0|4", None), ("?", None)],
)
def test_a_pack_killed_for_memory_gets_twice_as_much_for_each_of_its_steps(
    run: Run, slurm: FakeSlurm, answer: str, had: int | None
) -> None:
    """Its job asked for none, and the words about it are in the log of the job's own process."""
    complete(*steps_of(run, "collect"))
    settings = ["pretrain.memory_gb=null", "pretrain.pack=4"]
    submit(run, *settings)
    first = load_records(run)[steps_of(run, "pretrain")[0].title]
    log = Path(first.log)
    assert log.name == "100_1_log.out"
    (log.parent / "100_0_log.out").write_text(KILL)
    complete(*steps_of(run, "pretrain")[:2])
    slurm._program("sacct", f"echo '{answer}'")
    submit(run, *settings)
    again = load_records(run)[steps_of(run, "pretrain")[3].title]
    assert again.memory_gb == (had and 2 * had)
    script = slurm.scripts()[again.id]
    assert "--cpus-per-task=2\n" in script, "two of four are left"
    asked = re.findall(r"--mem-per-cpu=(\w+)", script)
    assert asked == ([f"{2048 * had}M"] if had else [])
