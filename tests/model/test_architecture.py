"""Models and losses of other packages: the law of a model's two functions, and what is refused."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
import torch

from sad_hpc.errors import ConfigError
from sad_hpc.experiment import installed
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.pipeline import launch
from sad_hpc.model.architecture import make_model
from sad_hpc.model.context import Inputs
from sad_hpc.model.kv_cache import KVCache
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.pretrain.learner import action_loss
from sad_hpc.storage.run import Run
from tests.conftest import ROOT, TINY

sys.path.insert(0, str(ROOT / "examples/set_model"))
from set_model import DeepSet, smoothed

NOT_A_MODEL = dict
CONFIG = ModelConfig(embedding=16, layers=2, dropout=0.0)
PLACES = {
    "model.architecture": {
        "deep_set": "set_model:DeepSet",
        "mine": f"{__name__}:NOT_A_MODEL",
        "none": "set_model:Recurrent",
    },
    "pretrain.loss": {"smoothed": "set_model:smoothed", "size": "set_model:SMOOTHING"},
}


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of examples/ as if it were installed."""

    others = installed._points

    def points(key: str) -> EntryPoints:
        if key not in PLACES:
            return others(key)
        group = installed.GROUPS[key]
        return EntryPoints(EntryPoint(*named, group) for named in PLACES[key].items())

    monkeypatch.setattr(installed, "_points", points)


@pytest.fixture(params=["gpt2", "deep_set"])
def model(request: pytest.FixtureRequest) -> SequenceModel:
    torch.manual_seed(0)
    config = CONFIG.model_copy(update={"architecture": request.param})
    return make_model(config, Inputs(5, 6, (3.0,), (0.5,))).eval()


@torch.no_grad()
def test_a_query_sees_its_prefix_and_nothing_else(model: SequenceModel):
    tokens, queries = torch.randn(2, 6, model.inputs.width), torch.randn(2, 3, model.inputs.width)
    prefixes = torch.tensor([[0, 2, 6], [5, 5, 1]])
    logits = model.answer(tokens, queries, prefixes)
    for row, query in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)]:
        prefix = int(prefixes[row, query])
        alone = model.answer(
            tokens[row : row + 1, :prefix],
            queries[row : row + 1, query : query + 1],
            torch.tensor([[prefix]]),
        )
        torch.testing.assert_close(logits[row, query], alone[0, 0])


@torch.no_grad()
def test_a_context_that_grows_is_the_whole_context(model: SequenceModel):
    tokens, query = torch.randn(2, 6, model.inputs.width), torch.randn(2, 1, model.inputs.width)
    cache = KVCache(capacity=6)
    for first, last in ((0, 1), (1, 4), (4, 6)):
        model.extend(cache, tokens[:, first:last])
    prefixes = torch.full((2, 1), 6)
    torch.testing.assert_close(
        model.ask(cache, query, prefixes), model.answer(tokens, query, prefixes)
    )


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt2", "deep_set"])
def test_a_transition_of_a_bandit_answers_like_a_query_after_it(name: str):
    torch.manual_seed(0)
    inputs = Inputs(5, 6, (0.0,), (1.0,), stateless=True)
    model = make_model(CONFIG.model_copy(update={"architecture": name}), inputs).eval()
    tokens, queries = torch.randn(2, 6, inputs.width), torch.zeros(2, 7, inputs.width)
    tokens[..., 0] = 0  # the state
    prefixes = torch.arange(7).expand(2, -1)
    cache = KVCache()
    every = model.extend(cache, tokens)
    if name == "deep_set":
        torch.testing.assert_close(every, model.ask(cache, queries, prefixes)[:, 1:])
    torch.testing.assert_close(every, model.answer(tokens, queries, prefixes)[:, 1:])


def test_the_name_of_a_model_and_its_code_are_in_the_signature(monkeypatch: pytest.MonkeyPatch):
    plain = load_experiment(TINY)
    named = load_experiment(TINY, ["model.architecture=deep_set", "pretrain.loss=smoothed"])
    before = [each.pretrain_signature("SAD", 0) for each in (plain, named)]
    monkeypatch.setattr("sad_hpc.user_code._digest", lambda module: f"edited {module}")
    after = [each.pretrain_signature("SAD", 0) for each in (plain, named)]
    assert before[0] == after[0] and len({*before, *after}) == 3


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.architecture=lstm", "unknown 'lstm'; valid: deep_set, gpt2, mine, none"),
        ("model.architecture=none", "no object set_model:Recurrent: .* no attribute 'Recurrent'"),
        ("pretrain.loss=focal", "unknown 'focal'; valid: cross_entropy, size, smoothed"),
        ("pretrain.loss=size", "pretrain.loss is of type float: give a class or a function"),
    ],
)
def test_what_a_package_does_not_have_is_one_line(setting: str, words: str):
    with pytest.raises(ConfigError, match=words) as caught:
        load_experiment(TINY, [setting])
    assert "\n" not in str(caught.value)


def test_checkpoints_of_activations_need_the_own_model():
    settings = ["pretrain.checkpoint_activations=true", "model.architecture=deep_set"]
    with pytest.raises(ConfigError, match=r"is for model\.architecture=gpt2, not for deep_set"):
        load_experiment(TINY, settings)


def test_a_class_that_is_no_model_is_named():
    with pytest.raises(ConfigError, match="is no subclass of"):
        config = CONFIG.model_copy(update={"architecture": "mine"})
        make_model(config, Inputs(5, 6, (3.0,), (0.5,)))


def test_a_launch_refuses_it_before_it_submits_jobs(tmp_path: Path):
    experiment = load_experiment(TINY, ["model.architecture=mine"])
    with pytest.raises(ConfigError, match="is no subclass of"):
        launch(
            Run(experiment, tmp_path), TINY, [], tmp_path, load_cluster("local", []), False, True
        )


class Tied(DeepSet):
    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.embed[4].weight = self.embed[2].weight


class Normed(DeepSet):
    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.norm = torch.nn.BatchNorm1d(4)


class Fixed(DeepSet):
    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.embed.requires_grad_(False)


class Broken(DeepSet):
    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Tied, r"the parameter embed\.4\.weight under two names"),
        (Normed, r"the buffer norm\.running_mean, which is not saved"),
        (Fixed, r"the fixed parameter embed\.0\.weight"),
        (Broken, "cannot be made: it ends the process with exit code 3"),
    ],
)
def test_a_model_that_a_training_cannot_keep_is_refused(
    made: type[DeepSet], words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(PLACES["model.architecture"], "own", f"{__name__}:{made.__name__}")
    with pytest.raises(ConfigError, match=rf"^model\.architecture=own.*{words}"):
        config = CONFIG.model_copy(update={"architecture": "own"})
        make_model(config, Inputs(5, 6, (3.0,), (0.5,)))


def test_a_smoothed_loss_is_least_for_labels_with_doubt():
    labels = torch.zeros(1, 1, dtype=torch.long)
    doubt = torch.tensor([0.9 + 0.1 / 2, 0.1 / 2]).log()[None, None]
    sure = torch.tensor([0.999, 0.001]).log()[None, None]
    assert smoothed(doubt, labels, None) < smoothed(sure, labels, None)
    assert action_loss(doubt, labels) > action_loss(sure, labels)
