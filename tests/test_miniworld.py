"""Miniworld through every stage: the parts that other families do not cover."""

import os
import shutil
import signal
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from sad_hpc.cli import main
from sad_hpc.collect.stage import collect
from sad_hpc.dataset.verify import inspect, verify
from sad_hpc.distill.block import Block
from sad_hpc.errors import ConfigError, RenderError, UserError
from sad_hpc.evaluate.acting import sampled
from sad_hpc.evaluate.agent_memory import history_places
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.policy import Trained
from sad_hpc.evaluate.poses import Rooms, evaluate_poses, optimal_returns, random_returns
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.sections import EvaluateConfig, ModelConfig
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.transformer import Transformer
from sad_hpc.storage.run import Run
from sad_hpc.tasks.miniworld.family import Miniworld, MiniworldConfig
from sad_hpc.tasks.miniworld.motion import step_poses
from sad_hpc.tasks.miniworld.room import heading_vectors
from sad_hpc.tasks.miniworld.shortest import steps_to_reward
from tests.conftest import ROOT
from tests.gl import require_gl

require_gl()

from sad_hpc.tasks.miniworld.render_process import RenderProcess  # noqa: E402 (only where OpenGL is)
from sad_hpc.tasks.miniworld.renderer import shared_renderer  # noqa: E402

TINY = ROOT / "tests/configs/tiny_miniworld.yaml"
FAMILY = Miniworld(MiniworldConfig(horizon=6))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Collected; tests must not change it."""
    made = Run(load_experiment(TINY), tmp_path_factory.mktemp("runs"))
    collect(made)
    return made


def copy_of(run: Run, folder: Path) -> Run:
    shutil.copytree(run.runs, folder / "runs")
    return Run(run.experiment, folder / "runs")


def columns(run: Run, split: str) -> dict[str, np.ndarray]:
    with h5py.File(run.data().path / split / "dataset.h5") as file:
        return {
            f"{group}/{name}": file[group][name][()]
            for group in ("transitions", "episodes", "labels/sad", "tasks")
            for name in file[group]
        }


def test_images_are_those_of_the_states(run: Run):
    found, renderer = columns(run, "train"), shared_renderer(25)
    for states, images in (
        ("transitions/states", "transitions/images"),
        ("episodes/states", "episodes/images"),
        ("labels/sad/query_states", "labels/sad/query_images"),
    ):
        chosen = found[states][[0, 50, 100]].reshape(-1, 3)
        shown = found[images][[0, 50, 100]].reshape(-1, 25, 25, 3)
        assert (renderer.render(chosen) == shown).all()


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first renderer, by number, is killed when it is asked a second time."""
    render, numbers = RenderProcess.render, []

    def killing(self: RenderProcess, poses: np.ndarray) -> np.ndarray:
        if self._pool is not None and not numbers:
            [process] = self._pool._processes.values()
            numbers.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)
        return render(self, poses)

    monkeypatch.setattr(RenderProcess, "render", killing)
    return numbers


def test_a_collection_whose_renderer_dies_makes_the_same_data(
    run: Run, tmp_path: Path, killed: list[int], capsys: pytest.CaptureFixture[str]
):
    again = Run(run.experiment, tmp_path)
    collect(again)
    assert "rendering again in a new process: A process in the" in capsys.readouterr().out
    assert killed and again.data().done["digests"] == run.data().done["digests"]


def dies(poses: np.ndarray, image_size: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.stress
def test_a_renderer_that_dies_again_and_again_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sad_hpc.tasks.miniworld.render_process._render", dies)
    with pytest.raises(UserError, match="has failed 3 times"):
        RenderProcess(25).render(np.zeros((1, 3)))


def fails_twice(poses: np.ndarray, image_size: int) -> np.ndarray:
    with Path(os.environ["ATTEMPTS"]).open("a+") as attempts:
        attempts.write("x")
        if attempts.tell() < 3:
            raise RenderError("OpenGL reports error 0x507")
    return poses


@pytest.mark.stress
def test_opengl_that_fails_gets_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sad_hpc.tasks.miniworld.render_process._render", fails_twice)
    monkeypatch.setenv("ATTEMPTS", str(tmp_path / "attempts"))
    process = RenderProcess(25)
    assert process.render(np.ones((1, 3))).tolist() == [[1, 1, 1]]
    process.close()
    monkeypatch.setattr("sad_hpc.tasks.miniworld.render_process.ATTEMPTS", 2)
    (tmp_path / "attempts").unlink()
    with pytest.raises(UserError, match=r"failed 2 times .*OpenGL reports error 0x507"):
        RenderProcess(25).render(np.zeros((1, 3)))


def test_what_opengl_reports_is_an_error(monkeypatch: pytest.MonkeyPatch):
    """Have glGetError return an error, as after the loss of the driver."""
    from pyglet import gl

    monkeypatch.setattr(gl, "glGetError", lambda: 0x0507)
    with pytest.raises(UserError, match="OpenGL reports error 0x507"):
        shared_renderer(25).render(np.array([[3.0, 3.0, 0.0]]))


def test_verify_passes_and_inspect_shows_the_label_accuracy(run: Run):
    for split in ("train", "test"):
        assert verify(run.data().path / split).faults == []
    report = inspect(run.data().path / "train")
    assert report["label_accuracy"]["dpt_star"] == 1
    assert report["label_accuracy"]["sad"] > 0.85 > report["label_accuracy"]["dpt"]


@pytest.mark.parametrize("column", ["next_states", "rewards", "states", "images", "target"])
def test_altered_contexts_are_found(column: str, run: Run, tmp_path: Path):
    """Also where the checksums agree: as if the kernel had been wrong."""
    from sad_hpc.dataset.reader import read_shard
    from sad_hpc.dataset.schema import Manifest
    from sad_hpc.dataset.writer import shard_content, write_shard

    copy = copy_of(run, tmp_path)
    folder = copy.data().path / "train"
    manifest = Manifest.load(folder)
    arrays = read_shard(folder, manifest, manifest.shards[0])
    if column == "images":
        arrays["transitions/images"] = arrays["transitions/images"][..., :24, :]
    elif column == "target":
        arrays["tasks/parameters"] = arrays["tasks/parameters"] + 4
    elif column == "rewards":
        arrays["transitions/rewards"] = 1 - arrays["transitions/rewards"]
    else:
        arrays[f"transitions/{column}"] = arrays[f"transitions/{column}"] + 1e-9
    block = Block(arrays, manifest.shards[0].steps)
    content = shard_content(block, manifest.signature, manifest.config, "miniworld")
    manifest.shards[0] = write_shard(folder, 0, block, content)
    manifest.save(folder)
    faults = " ".join(verify(folder).faults)
    named = {"images": "transitions/images has shape", "target": "labels/sad has states or actions"}
    assert named.get(column, "breaks the dynamics") in faults


def make_model(family: Miniworld = FAMILY) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(ModelConfig(dropout=0.0), Inputs.of_family(family)).eval()
    torch.nn.init.normal_(model.head.weight, std=1.0)
    return model


def ask(
    model: Transformer, states: torch.Tensor, context: Context, images: torch.Tensor
) -> torch.Tensor:
    """(n, A): the answers to one state (n, 3) with its image each, after the whole context."""
    whole = torch.full((len(states), 1, 1), context.actions.shape[1])
    return model(context, Queries(states[:, None], whole, images[:, None]))[:, 0]


@torch.no_grad()
def test_the_model_sees_images_and_headings_but_no_positions(run: Run):
    found, model = columns(run, "test"), make_model()
    names = ("states", "actions", "rewards", "next_states", "images")
    context = Context(**{name: torch.from_numpy(found[f"transitions/{name}"]) for name in names})
    states = torch.from_numpy(found["episodes/states"][:, 0])
    images = torch.from_numpy(found["episodes/images"][:, 0])
    answers = ask(model, states, context, images)

    def change(**parts: torch.Tensor) -> Context:
        return Context(**{**vars(context), **parts})

    elsewhere = torch.tensor([0.5, -0.5, 0.0])
    moved = change(states=context.states + elsewhere, next_states=context.next_states + 1)
    assert torch.equal(ask(model, states + elsewhere, moved, images), answers)
    whole_turn = torch.tensor([0.0, 0.0, 2 * np.pi])
    turned = change(states=context.states + whole_turn)
    assert torch.allclose(ask(model, states, turned, images), answers, atol=1e-5)
    for other in (
        ask(model, states + torch.tensor([0.0, 0.0, 1.0]), context, images),
        ask(model, states, context, 255 - images),
        ask(model, states, change(images=255 - context.images), images),
        ask(model, states, change(rewards=1 - context.rewards), images),
    ):
        assert not torch.allclose(other, answers, atol=1e-3)


@torch.no_grad()
def test_a_walk_answers_as_from_scratch_and_its_tokens_are_those_of_its_transitions(run: Run):
    """Each step: the whole model on stored images against the features that were kept."""
    found, model = columns(run, "test"), make_model()
    targets = found["tasks/parameters"][:, 0].astype(np.int64)
    names = ("states", "actions", "rewards", "next_states", "images")
    context = Context(**{name: torch.from_numpy(found[f"transitions/{name}"]) for name in names})
    rooms = Rooms(model, FAMILY, targets, 5, np.random.default_rng(0))
    asked: list[np.ndarray] = []

    def greedy(logits: np.ndarray) -> np.ndarray:
        asked.append(logits)
        return logits.argmax(axis=-1)

    walk = rooms.walk(rooms.read(context), greedy)
    poses, renderer = walk.starts, shared_renderer(25)
    transitions = []
    for step, logits in enumerate(asked):
        images = torch.from_numpy(renderer.render(poses))
        scratch = ask(model, torch.from_numpy(poses), context, images)
        assert np.allclose(scratch, logits, atol=1e-4)
        actions = logits.argmax(axis=-1).astype(np.uint8)
        after, rewards = step_poses(poses, actions, targets)
        assert (rewards == walk.rewards[:, step]).all()
        transitions.append((poses, actions, rewards, after, images.numpy()))
        poses = after
    whole = [torch.from_numpy(np.stack(part, axis=1)) for part in zip(*transitions, strict=True)]
    assert torch.allclose(rooms.read(Context(*whole)), walk.tokens, atol=1e-5)


def recalled(walks: list[Context], generator: np.random.Generator) -> Context:
    """25 transitions of all episodes, as `evaluate.memory: history` draws them."""
    names = [name for name, part in vars(walks[0]).items() if part is not None]
    past = {name: torch.cat([vars(walk)[name] for walk in walks], dim=1) for name in names}
    rows = torch.cat([past["states"], past["actions"][:, :, None]], dim=2).numpy()
    keys = np.stack([np.unique(room, axis=0, return_inverse=True)[1].ravel() for room in rows])
    assert (keys.max(axis=1) < keys.shape[1] - 1).all()  # some did the same twice
    places = history_places(keys, past["rewards"].numpy() > 0, 25, generator)
    rooms = np.arange(len(keys))[:, None]
    return Context(**{name: part[rooms, places] for name, part in past.items()})


@pytest.mark.parametrize(
    "memory, greedy_after_reward",
    [("episode", False), ("history", False), ("episode", True)],
)
@torch.no_grad()
def test_evaluation_is_that_of_a_plain_loop(
    run: Run, memory: str, greedy_after_reward: bool, killed: list[int]
):
    """Even if its renderer dies.  Offline: the dataset's context, greedy; online: each episode is
    the next one's context, or what is drawn of all episodes, and actions are drawn, always or until
    a reward is shown."""
    family = Miniworld(MiniworldConfig(horizon=25))  # long enough to come to a box
    found, model = columns(run, "test"), make_model(family)
    model.head.weight *= 0.2
    model.head.bias[2] += 1.5  # forward: some come to their box
    settings = EvaluateConfig(
        tasks=24,
        online_episodes=6,
        headline_episodes=2,
        batch_size=5,
        memory=memory,
        greedy_after_reward=greedy_after_reward,
    )
    found = {name: column[:24] for name, column in found.items()}
    targets = found["tasks/parameters"][:, 0].astype(np.int64)
    generator = np.random.default_rng(5)
    modes = evaluate_poses(
        family, Evaluation(Trained(model, 25), settings, generator, print), found
    )
    assert killed
    generator, renderer = np.random.default_rng(5), shared_renderer(25)
    names = ("states", "actions", "rewards", "next_states", "images")

    def play(context: Context, greedy: bool, sure: np.ndarray) -> Context:
        poses, history = np.full((24, 3), 3.0), []
        poses[:, 2] = 2 * np.pi * generator.random(24)
        for _ in range(25):
            images = torch.from_numpy(renderer.render(poses))
            logits = ask(model, torch.from_numpy(poses), context, images).numpy()
            uniforms = None if greedy else generator.random(24)
            best = logits.argmax(axis=-1)
            actions = best if greedy else np.where(sure, best, sampled(logits, uniforms))
            after, rewards = step_poses(poses, actions.astype(np.uint8), targets)
            history.append((poses, actions.astype(np.uint8), rewards, after, images.numpy()))
            poses = after
        return Context(
            *(torch.from_numpy(np.stack(part, axis=1)) for part in zip(*history, strict=True))
        )

    given = Context(**{name: torch.from_numpy(found[f"transitions/{name}"]) for name in names})
    walk = play(given, True, np.ones(24, bool))
    assert (modes["offline"].values[:, 0] == walk.rewards.sum(dim=1).numpy()).all()
    seen = (given.rewards > 0).sum(dim=1).numpy()
    assert (modes["offline"].context_rewards[:, 0] == seen).all()
    context, walks = given.map(lambda part: part[:, :0]), []
    for episode in range(6):
        if walks:
            context = walks[-1] if memory == "episode" else recalled(walks, generator)
        seen = context.rewards.sum(dim=1).numpy()
        assert (modes["online"].context_rewards[:, episode] == seen).all()
        walks.append(play(context, False, (seen > 0) & (greedy_after_reward)))
        returns = walks[-1].rewards.sum(dim=1).numpy()
        assert (modes["online"].values[:, episode] == returns).all()
    assert modes["offline"].values.any() and modes["online"].values.any()
    assert (modes["online"].context_rewards > 0).sum() > 5


def test_optimal_returns_are_reached_by_the_shortest_way_and_never_exceeded():
    generator = np.random.default_rng(0)
    poses = np.full((40, 3), 3.0)
    poses[:, 2] = generator.uniform(0, 2 * np.pi, 40)
    targets = np.arange(40) % 4
    best, here = optimal_returns(poses, targets, 30), poses
    earned = np.zeros(40)
    for _ in range(30):
        every = [step_poses(here, np.full(40, a, np.uint8), targets)[0] for a in range(4)]
        left = np.stack([steps_to_reward(each, targets) for each in every])
        here, rewards = step_poses(here, left.argmin(axis=0).astype(np.uint8), targets)
        earned += rewards
    assert (earned == best).all()


def test_random_returns_are_those_of_uniform_actions_and_below_the_optimum():
    generator = np.random.default_rng(0)
    targets = np.repeat(np.arange(4), 2000)
    starts = np.full((len(targets), 3), 3.0)
    starts[:, 2] = generator.uniform(0, 2 * np.pi, len(targets))
    here, earned = starts, np.zeros(len(targets))
    for _ in range(50):
        here, rewards = step_poses(here, generator.integers(4, size=len(here)), targets)
        earned += rewards
    assert (earned <= optimal_returns(starts, targets, 50)).all()
    family = Miniworld(MiniworldConfig(horizon=50))
    expected = random_returns(family, np.arange(4).repeat(20), 0).reshape(4, 20).mean(axis=1)
    assert np.allclose(expected, earned.reshape(4, 2000).mean(axis=1), rtol=0.25)
    assert earned.mean() == pytest.approx(expected.mean(), rel=0.12)


def test_the_heading_that_the_model_is_told_is_the_environments():
    poses = np.full((9, 3), 3.0)
    poses[:, 2] = np.linspace(-7, 7, 9)
    images = torch.zeros((9, 25, 25, 3), dtype=torch.uint8)
    told = make_model().features(torch.from_numpy(poses), images)[:, -2:]
    assert np.allclose(told.detach(), heading_vectors(poses), atol=1e-6)


@pytest.mark.slow
def test_all_stages_to_the_table(run: Run, tmp_path: Path):
    copy = copy_of(run, tmp_path)
    folders = ["--runs", str(copy.runs), "--results", str(tmp_path / "results")]
    assert main(["launch", str(TINY), "rows=[DIT, SAD]", *folders]) == 0
    summary = pd.read_csv(tmp_path / "results/tiny_miniworld/summary.csv")
    assert set(summary["task_family"]) == {"miniworld"}
    offline = summary[(summary["mode"] == "offline") & (summary["subset"] == "all")]
    returns = offline.set_index("row")["mean"]
    assert set(returns.index) == {"DIT", "SAD", "optimal", "random"}
    assert 0 <= returns["random"] < returns["optimal"] <= 6
    assert ((returns >= 0) & (returns <= returns["optimal"])).all()


def test_images_of_another_size_are_another_dataset():
    other = load_experiment(TINY, ["task.image_size=32"])
    assert other.data_signature() != load_experiment(TINY).data_signature()
    with pytest.raises(ConfigError, match=r"task\.image_size.*13"):
        load_experiment(TINY, ["task.image_size=12"])
