"""`sad-hpc show CONFIG`: the resolved config, its rows, and the work of each stage."""

from collections.abc import Iterator

from sad_hpc.aggregate.formats import plain_table
from sad_hpc.experiment import plain_yaml
from sad_hpc.launch.graph import Step, graph
from sad_hpc.storage.run import Run


def shown(run: Run) -> str:
    """Return the config with all defaults, a table of its rows, and a table of its stages.

    Stages that several rows share are counted once.
    """
    config = run.experiment.model_dump(mode="json")
    return "\n".join(
        [
            plain_yaml.written(config),
            plain_table(["row", "method", "settings"], list(_rows(run))),
            plain_table(["stage", "jobs", "work of each", "complete"], list(_stages(run))),
        ]
    ).rstrip("\n")


def _rows(run: Run) -> Iterator[list[str]]:
    for name, row in run.experiment.by_row.items():
        settings = ", ".join(f"{key}={value}" for key, value in row.settings.items())
        yield [name, row.method, settings]


def _stages(run: Run) -> Iterator[list[str]]:
    """List each stage with its number of jobs and the different amounts of work among them."""
    steps: dict[str, list[Step]] = {}
    for step in graph(run):
        steps.setdefault(step.stage, []).append(step)
    for stage, members in steps.items():
        works = dict.fromkeys(_work(step) for step in members)
        complete = sum(step.complete for step in members)
        yield [stage, str(len(members)), "; ".join(works), f"{complete} of {len(members)}"]


def _work(step: Step) -> str:
    """Return the amount of work of a step, in units that its progress shows."""
    experiment = step.run.experiment
    data = experiment.data
    if step.stage == "collect":
        return f"{data.tasks:,} tasks in {data.blocks(data.tasks):,} blocks"
    if step.stage == "pretrain":
        trained = experiment.source
        return f"{trained.training_steps:,} steps of {trained.pretrain.batch_size} contexts"
    if step.stage == "evaluate":
        return f"{experiment.evaluate.tasks:,} test tasks"
    return "tables and figures"
