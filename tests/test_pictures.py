"""Environments whose observations are images: datasets, answers of models, and label rollouts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from sad_hpc.dataset.schema import are_images
from sad_hpc.dataset.verify import find_splits, verify
from sad_hpc.distill import make_block
from sad_hpc.distill.block import Draw
from sad_hpc.evaluate.acting import ActingRule, greedy
from sad_hpc.evaluate.encoded import TaskContexts
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.policy import Trained
from sad_hpc.evaluate.rollout_policy import deciding_in, simulated_incumbent
from sad_hpc.evaluate.simulated import Episodes, acting, play_simulators, tokens_of
from sad_hpc.experiment.sections import DataConfig, EvaluateConfig, ModelConfig
from sad_hpc.launch.check_config import check_config
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.image_encoder import ImageEncoder
from sad_hpc.model.transformer import Transformer
from sad_hpc.pretrain.training_columns import context_parts
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.environments.family import Gymnasium, GymnasiumConfig
from sad_hpc.tasks.environments.simulators import SEEDS
from tests.evaluate.test_simulated import logits_of
from tests.patience import HUNG

ENV, T = "tests.tasks.own_environments:Pictures-v0", 7
SHAPE = (16, 22, 3)
TASK = {
    "family": "gymnasium",
    "env": ENV,
    "horizon": T,
    "attributes": {"noise": {"uniform": [1, 2]}},
}
DATA = DataConfig(tasks=20, block_tasks=5, trust_horizon=2, queries_per_task=3)


@pytest.fixture(scope="module")
def family() -> Gymnasium:
    """Walks seen as images."""
    made = make_family(GymnasiumConfig(**TASK))
    assert isinstance(made, Gymnasium)
    return made


@pytest.fixture(scope="module")
def model(family: Gymnasium) -> Transformer:
    """One whose answers depend on the images."""
    torch.manual_seed(0)
    made = Transformer(ModelConfig(dropout=0.0), Inputs.of_family(family)).eval()
    for layer in (made.embed, made.head):
        torch.nn.init.normal_(layer.weight, std=3.0)
    return made


def random_context(family: Gymnasium, parameters: np.ndarray) -> Context:
    """Contexts of random play, of the parts that training reads."""
    generator = np.random.default_rng(5)
    seen = Episodes(family, parameters, generator).rollout(
        lambda simulators, step: generator.integers(3, size=len(parameters))
    )
    return Context.of_parts({name: seen.parts[name] for name in context_parts(family)})


def test_images_of_a_dataset_are_those_of_the_environment_replayed(family: Gymnasium) -> None:
    arrays = make_block(family, DATA, "train", 1).arrays
    states, following = arrays["transitions/states"], arrays["transitions/next_states"]
    assert states.shape == following.shape == (5, T, *SHAPE)
    assert states.dtype == arrays["labels/sad/query_states"].dtype == np.uint8
    stream = Draw.of(family, DATA, "train", 1, ["transitions"]).streams["transitions"]
    seeds = np.random.default_rng(stream).integers(SEEDS, size=5)
    assert not arrays["transitions/ends"].any()
    for task in range(5):
        environment = gymnasium.make(ENV, max_episode_steps=-1, disable_env_checker=True)
        environment.unwrapped.noise = arrays["tasks/parameters"][task, 0]
        found = [environment.reset(seed=int(seeds[task]))[0]]
        for action in arrays["transitions/actions"][task]:
            found.append(environment.step(np.int64(action) - 1)[0])
        np.testing.assert_array_equal(states[task], found[:-1])
        np.testing.assert_array_equal(following[task], found[1:])
    asked = arrays["labels/dpt/query_states"]
    shown = (asked[:, :, None] == states[:, None]).all(axis=(3, 4, 5))
    assert shown.any(axis=2).all()


@torch.no_grad()
def test_an_encoder_of_any_shape_sees_every_channel() -> None:
    for shape in [(13, 13, 1), (96, 13, 4), (20, 31, 3)]:
        encoder = ImageEncoder(shape)
        images = torch.randint(256, (2, 3, *shape), dtype=torch.uint8)
        plain = encoder(images)
        assert plain.shape == (2, 3, 16)
        for channel in range(shape[2]):
            changed = images.clone()
            changed[..., channel] = 255 - changed[..., channel]
            assert (encoder(changed) != plain).any(dim=2).all()


def test_an_agent_does_in_each_image_what_a_pass_through_the_whole_says(
    family: Gymnasium, model: Transformer
) -> None:
    generator = np.random.default_rng(2)
    parameters = family.draw_tasks("test", 6, generator)
    context = random_context(family, parameters)
    played = Episodes(family, parameters, generator).rollout(acting(model, context, greedy, 4))
    queries = Queries(torch.from_numpy(played.states), torch.full((6, T, 1), T))
    with torch.no_grad():
        logits = model(context, queries)
    np.testing.assert_array_equal(played.actions, logits.argmax(dim=2))
    assert len(np.unique(played.actions)) > 1


def test_online_play_encodes_each_new_image_once(
    family: Gymnasium, model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert model.images is not None
    encode, encoded = model.images.forward, []
    monkeypatch.setattr(
        model.images, "forward", lambda images: [encoded.append(images.clone()), encode(images)][1]
    )
    contexts: list[Context] = []
    tokens = model.context_tokens
    monkeypatch.setattr(
        model, "context_tokens", lambda context: [contexts.append(context), tokens(context)][1]
    )
    generator = np.random.default_rng(3)
    parameters = family.draw_tasks("test", 4, generator)
    settings = EvaluateConfig(tasks=4, online_episodes=3, headline_episodes=1)
    play_simulators(
        family, Evaluation(Trained(model, T), settings, generator), parameters, ActingRule()
    )
    # The first context has no transitions, whose images are none.
    images = [each for each in encoded if each.numel()]
    assert sum(each[..., 0, 0, 0].numel() for each in images) == 4 * T * 3
    with torch.no_grad():
        whole = encode(torch.stack(images[T : 2 * T], dim=1))
    torch.testing.assert_close(contexts[2].states, whole)


def test_one_pass_answers_for_all_simulators_of_a_task(
    family: Gymnasium, model: Transformer
) -> None:
    generator = np.random.default_rng(4)
    parameters = family.draw_tasks("test", 3, generator)
    tasks = np.repeat([0, 2], [9, 4])
    context = random_context(family, parameters)
    seen = family.simulators(parameters[tasks], generator).observations
    after = torch.full((len(tasks), 1, 1), T)
    with torch.no_grad():
        queries = Queries(torch.from_numpy(seen)[:, None], after)
        expected = model(context.map(lambda part: part[tasks]), queries)[:, 0].numpy()
    contexts = TaskContexts(model, tokens_of(model, context, 2), 2)
    found = logits_of(deciding_in(model, contexts, tasks), seen)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_a_later_round_follows_a_model_of_images(family: Gymnasium, model: Transformer) -> None:
    incumbent = simulated_incumbent(model, family, 0.0, 8)
    arrays = make_block(family, DATA, "train", 0, incumbent=incumbent).arrays
    plain = make_block(family, DATA, "train", 0).arrays
    for name in arrays:
        assert (arrays[name].shape, arrays[name].dtype) == (plain[name].shape, plain[name].dtype)
    assert sum(map(are_images, arrays.values())) == 4


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config of the walks."""
    mapping = {"name": "pictures", "task": TASK, "data": DATA.model_dump(mode="json")}
    mapping |= {"rows": ["SAD"], "pretrain": {"epochs": 1, "holdout_tasks": 4, "batch_size": 4}}
    path = tmp_path / "pictures.yaml"
    path.write_text(json.dumps(mapping | {"evaluate": {"tasks": 4}}))
    return path


def test_doctor_says_the_bytes_of_the_images(config: Path) -> None:
    told = check_config(config)
    image, train = 16 * 22 * 3 / 1e6, 16
    assert "images of 16 x 22 x 3" in told
    assert f"images: {T * image:.2g} MB a context" in told
    assert f"{train * (T + 3) * image:.2g} MB for a training rank" in told
    assert f"{5 * 2 * (T + 3) * image:.2g} MB for a collecting rank" in told


def test_doctor_tries_no_random_play_for_logged_contexts(config: Path) -> None:
    mapping = json.loads(config.read_text())
    mapping["data"]["imported_contexts"] = "logs-0123456789ab"
    config.write_text(json.dumps(mapping | {"rows": ["DPT"]}))
    told = check_config(config)
    assert "training: 20 tasks" in told and "images:" not in told and "a task," not in told


@pytest.mark.slow
def test_one_and_two_ranks_make_the_same_files_which_verify_accepts(
    config: Path, tmp_path: Path
) -> None:
    found = []
    for ranks in (1, 2):
        runs, tools = tmp_path / str(ranks), Path(sys.executable).parent
        command = [str(tools / "mpiexec"), "-n", str(ranks), str(tools / "sad-hpc"), "collect"]
        path = f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}"
        subprocess.run(
            [*command, str(config), "--runs", str(runs)],
            check=True, timeout=HUNG, env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        verdicts = [verify(split) for split in find_splits(runs / "pictures")]
        assert [verdict.faults for verdict in verdicts] == [[], []]
        found.append([verdict.digest for verdict in verdicts])
    assert found[0] == found[1]
