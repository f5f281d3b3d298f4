import dataclasses
import hashlib
import math
from typing import TYPE_CHECKING

import pytest
import torch

from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model import sequence_model
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.kv_cache import KVCache
from sad_hpc.model.transformer import Transformer, head_width
from sad_hpc.tasks.bandit import GaussianBanditConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.miniworld.family import MiniworldConfig

if TYPE_CHECKING:
    from transformers import GPT2Model

INPUTS = Inputs(n_actions=5, horizon=12, state_center=(3.0, 3.0), state_scale=(0.5, 0.5))


def model(inputs: Inputs = INPUTS, **changes) -> Transformer:
    torch.manual_seed(0)
    return Transformer(ModelConfig(**({"dropout": 0.0} | changes)), inputs).eval()


def draw(high: int, *shape: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(high, shape, generator=generator, dtype=torch.uint8)


def random_context(batch: int, length: int) -> Context:
    return Context(
        states=draw(7, batch, length, 2, seed=2),
        actions=draw(5, batch, length, seed=3),
        rewards=draw(2, batch, length, seed=4),
        next_states=draw(7, batch, length, 2, seed=5),
    )


def random_queries(batch: int, queries: int, prefixes: int, longest: int = 12) -> Queries:
    return Queries(draw(7, batch, queries, 2), draw(longest + 1, batch, queries, prefixes).long())


@torch.no_grad()
def hugging_faces(ours: Transformer, heads: int) -> "GPT2Model":
    """GPT-2 with the weights of our blocks, norms and positions, which are drawn before."""
    from transformers import GPT2Config, GPT2Model  # takes seconds

    for parameter in ours.parameters():  # biases and norms too, so that none is trivially 0 or 1
        parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(parameter.numel()))
    length, width = ours.positions.weight.shape
    theirs = GPT2Model(
        GPT2Config(
            vocab_size=1, n_positions=length, n_embd=width, n_layer=len(ours.blocks), n_head=heads,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
    ).eval()  # fmt: skip
    theirs.wpe.weight.copy_(ours.positions.weight)
    theirs.ln_f.load_state_dict(ours.norm.state_dict())
    for block, other in zip(ours.blocks, theirs.h, strict=True):
        other.ln_1.load_state_dict(block.norm_attention.state_dict())
        other.ln_2.load_state_dict(block.norm_feed_forward.state_dict())
        pairs = (
            (block.attention.query_key_value, other.attn.c_attn),
            (block.attention.projection, other.attn.c_proj),
            (block.feed_forward[0], other.mlp.c_fc),
            (block.feed_forward[2], other.mlp.c_proj),
        )
        for linear, convolution in pairs:
            convolution.weight.copy_(linear.weight.T)
            convolution.bias.copy_(linear.bias)
    return theirs


@torch.no_grad()
def test_packed_answers_are_those_of_a_plain_gpt2_after_a_prefix_and_one_query():
    ours = model(layers=3, heads=3, embedding=48, head_dim=16)
    theirs = hugging_faces(ours, heads=3)
    context, queries = random_context(4, 12), random_queries(4, 5, 3)
    tokens, query_tokens = ours.tokens(context, queries)
    answers, prefixes = ours(context, queries), queries.prefixes.flatten(1)
    assert prefixes.min() == 0 and prefixes.max() == 12, "the ends of the range are among them"
    for b in range(4):
        for k, prefix in enumerate(prefixes[b].tolist()):
            sequence = torch.cat([tokens[b, :prefix], query_tokens[b, k : k + 1]]).unsqueeze(0)
            places = torch.tensor([[*range(1, prefix + 1), 0]])
            plain = theirs(inputs_embeds=ours.embed(sequence), position_ids=places)
            expected = ours.head(plain.last_hidden_state[0, -1])
            assert torch.allclose(answers[b, k], expected, rtol=1e-5, atol=1e-5), (b, k)


@torch.no_grad()
def test_no_query_sees_another():
    network, context, queries = model(), random_context(3, 12), random_queries(3, 6, 1)
    before = network(context, queries)
    states, prefixes = queries.states.clone(), queries.prefixes.clone()
    states[:, 2] = 6 - states[:, 2]
    prefixes[:, 2] = 12 - prefixes[:, 2]
    after = network(context, Queries(states, prefixes))
    others = torch.tensor([0, 1, 3, 4, 5])
    assert torch.equal(before[:, others], after[:, others])
    assert not torch.equal(before[:, 2], after[:, 2])


@torch.no_grad()
def test_many_queries_are_answered_in_parts(monkeypatch: pytest.MonkeyPatch):
    network, asked = model(), (random_context(2, 9), random_queries(2, 5, 2, longest=9))
    expected = network(*asked)
    monkeypatch.setattr(sequence_model, "QUERIES_AT_ONCE", 4)
    torch.testing.assert_close(network(*asked), expected, atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_no_query_sees_what_follows_its_prefix():
    network, context = model(), random_context(3, 12)
    prefixes = torch.arange(13).expand(3, 1, -1)
    queries = Queries(draw(7, 3, 1, 2), prefixes)
    before = network(context, queries)
    for length in (0, 1, 7):
        changed = context.map(lambda part, length=length: _changed_from(part, length))
        after = network(changed, queries)
        assert torch.equal(before[:, : length + 1], after[:, : length + 1])
        assert (before[:, length + 1 :] != after[:, length + 1 :]).any(dim=2).all()
        shorter = context.map(lambda part, length=length: part[:, :length])
        alone = network(shorter, Queries(queries.states, prefixes[:, :, : length + 1]))
        assert torch.allclose(alone, before[:, : length + 1], atol=1e-5)


def _changed_from(part: torch.Tensor, place: int) -> torch.Tensor:
    """(B, T, ...) with other, valid entries from this place on."""
    changed = part.clone()
    changed[:, place:] = 1 - changed[:, place:].clamp(max=1)
    return changed


@torch.no_grad()
def test_without_states_answers_are_read_off_the_context():
    """All at once, one transition after the other, and after single prefixes."""
    inputs = Inputs(5, 12, (0.0,), (1.0,), stateless=True)
    network, some = model(inputs), random_context(3, 12)
    states = torch.zeros(3, 12, 1, dtype=torch.uint8)
    context = Context(states, some.actions, some.rewards, states)
    every = network(context, Queries(states[:, :1], torch.arange(13).expand(3, 1, -1)))
    tokens, cache = network.context_tokens(context), KVCache(12)
    for place in range(12):
        one = network.extend(cache, tokens[:, place : place + 1])[:, 0]
        assert torch.allclose(one, every[:, place + 1], atol=1e-5), place
    prefixes = torch.tensor([[[7, 0]], [[12, 12]], [[3, 1]]])
    single = network(context, Queries(states[:, :1], prefixes))
    expected = every.gather(1, prefixes[:, 0].unsqueeze(2).expand(-1, -1, 5))
    assert torch.equal(single, expected)


@torch.no_grad()
def test_tokens_hold_scaled_states_one_hot_actions_and_scaled_rewards():
    network = model(dataclasses.replace(INPUTS, reward_scale=4.0))
    context, queries = random_context(2, 3), random_queries(2, 2, 2)
    tokens, asked = network.tokens(context, queries)
    assert tokens.shape == (2, 3, INPUTS.width) and asked.shape == (2, 4, INPUTS.width)
    assert (asked[:, ::2, :2] == (queries.states.float() - 3) / 2).all()
    assert (asked[:, ::2] == asked[:, 1::2]).all()
    assert (asked[:, :, 2:] == 0).all()
    assert (tokens[..., :2] == (context.states.float() - 3) / 2).all()
    assert (tokens[..., 2:7].argmax(-1) == context.actions).all()
    assert (tokens[..., 2:7].sum(-1) == 1).all()
    assert (tokens[..., 7:9] == (context.next_states.float() - 3) / 2).all()
    assert (tokens[..., 9] == 4 * context.rewards.float()).all()


@torch.no_grad()
def test_images_that_are_asked_about_are_encoded_once():
    images, poses = draw(255, 2, 3, 13, 13, 3), torch.rand(2, 3, 3, dtype=torch.float64)
    context = Context(poses, draw(4, 2, 3), draw(2, 2, 3), poses, images)
    prefixes = torch.arange(3).view(1, 3, 1).expand(2, -1, -1)
    network = model(Inputs(4, 3, (0.0,) * 3, (1.0,) * 3, image_shape=(13, 13, 3)))
    shapes = []
    network.images.register_forward_hook(lambda _, given, __: shapes.append(given[0].shape))
    own = network(context, Queries(poses, prefixes, images))
    assert shapes == [images.shape]
    copies = network(context, Queries(poses.clone(), prefixes, images.clone()))
    assert len(shapes) == 3 and torch.equal(own, copies)


@torch.no_grad()
@pytest.mark.parametrize("with_buffers", [True, False], ids=["all", "parameters"])
@pytest.mark.parametrize("image_size", [None, 13])
def test_weights_may_be_in_half_precision(image_size: int | None, with_buffers: bool):
    """DeepSpeed brings parameters into bf16 and leaves buffers as they are."""
    network = model(Inputs(4, 3, (0.0,) * 3, (1.0,) * 3, image_shape=image_size and (13, 13, 3)))
    poses, images = torch.rand(2, 3, 3, dtype=torch.float64), draw(255, 2, 3, 13, 13, 3)
    images = None if image_size is None else images
    context = Context(poses, draw(4, 2, 3), draw(2, 2, 3), poses, images)
    asked = context, Queries(poses, torch.arange(3).view(1, 3, 1).expand(2, -1, -1), images)
    expected = network(*asked)
    for tensor in [*network.parameters(), *(network.buffers() if with_buffers else ())]:
        tensor.data = tensor.data.bfloat16()
    answers = network(*asked)
    assert answers.dtype == torch.bfloat16
    torch.testing.assert_close(answers.float(), expected, atol=0.1, rtol=0.1)


@pytest.mark.parametrize(
    "config, width",
    [(dict(embedding=32, heads=3), 16), (dict(embedding=32, heads=4), 8), (dict(head_dim=5), 5)],
)
def test_head_width_is_rounded_up_to_a_multiple_of_8(config: dict, width: int):
    assert head_width(ModelConfig(**config)) == width


def test_scaled_initialisation_keeps_variance_and_gpt2s_is_0_02():
    for name, expected in (("scaled", 1 / math.sqrt(32)), ("gpt2", 0.02)):
        weight = model(initialization=name).blocks[0].attention.query_key_value.weight
        assert weight.std().item() == pytest.approx(expected, rel=0.1)


def test_dropout_acts_in_training_only():
    network = model(dropout=0.5)
    asked = random_context(2, 5), random_queries(2, 2, 1, longest=5)
    assert torch.equal(network(*asked), network(*asked))
    network.train()
    assert not torch.equal(network(*asked), network(*asked))


@pytest.mark.parametrize(
    ("config", "revision", "checksum"),
    [
        (DarkroomConfig(), 1, "d003f9e5b355"),
        (GaussianBanditConfig(horizon=50), 1, "93308ce6c919"),
        (MiniworldConfig(), 2, "38f85df73560"),
    ],
    ids=lambda value: getattr(value, "family", None),
)
def test_other_weights_need_another_model_revision(config, revision: int, checksum: str):
    """Or a training would go on from, or an evaluation load, weights of another model."""
    family = make_family(config)
    weights = model(Inputs.of_family(family)).state_dict()
    digest = hashlib.blake2b(digest_size=6)
    for name, weight in weights.items():
        digest.update(f"{name} {tuple(weight.shape)}\n".encode())
    assert (family.model_revision, digest.hexdigest()) == (revision, checksum), (
        "raise model_revision of this family, and write it and the new checksum here"
    )
