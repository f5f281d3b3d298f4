import dataclasses
import hashlib
import math

import pytest
import torch
from transformers import GPT2Config, GPT2Model

from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.transformer import Context, Inputs, Transformer, head_width
from sad_hpc.tasks.bandit import GaussianBanditConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.miniworld.family import MiniworldConfig

INPUTS = Inputs(n_actions=5, horizon=12, state_center=(3.0, 3.0), state_scale=(0.5, 0.5))


def model(inputs: Inputs = INPUTS, **changes) -> Transformer:
    torch.manual_seed(0)
    return Transformer(ModelConfig(**({"dropout": 0.0} | changes)), inputs).eval()


def random_context(batch: int, length: int) -> tuple[torch.Tensor, Context]:
    generator = torch.Generator().manual_seed(1)

    def draw(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=generator, dtype=torch.uint8)

    context = Context(
        states=draw(7, batch, length, 2),
        actions=draw(5, batch, length),
        rewards=draw(2, batch, length),
        next_states=draw(7, batch, length, 2),
    )
    return draw(7, batch, 2), context


@torch.no_grad()
def test_blocks_equal_hugging_faces_gpt2_with_the_same_weights():
    config = ModelConfig(layers=3, heads=3, embedding=48, head_dim=16, dropout=0.0)
    ours = Transformer(config, INPUTS).eval()
    theirs = GPT2Model(
        GPT2Config(
            vocab_size=1, n_positions=13, n_embd=48, n_layer=3, n_head=3, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0,
        )
    ).eval()  # fmt: skip
    for parameter in theirs.parameters():  # biases and norms too, so that none is trivially 0 or 1
        parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(parameter.numel()))
    ours.positions.weight.copy_(theirs.wpe.weight)
    ours.norm.load_state_dict(theirs.ln_f.state_dict())
    for block, other in zip(ours.blocks, theirs.h, strict=True):
        block.norm_attention.load_state_dict(other.ln_1.state_dict())
        block.norm_feed_forward.load_state_dict(other.ln_2.state_dict())
        pairs = (
            (block.attention.query_key_value, other.attn.c_attn),
            (block.attention.projection, other.attn.c_proj),
            (block.feed_forward[0], other.mlp.c_fc),
            (block.feed_forward[2], other.mlp.c_proj),
        )
        for linear, convolution in pairs:
            linear.weight.copy_(convolution.weight.T)
            linear.bias.copy_(convolution.bias)
    embedded = torch.randn(4, 13, 48, generator=torch.Generator().manual_seed(2))
    expected = theirs(inputs_embeds=embedded).last_hidden_state
    positions = ours.positions.weight[:13]
    assert torch.allclose(ours.decode(embedded + positions), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_answer_for_a_prefix_does_not_see_what_follows():
    network = model()
    query, context = random_context(3, 12)
    full = network(query, context)
    for length in (0, 1, 7):
        prefix = context.map(lambda part, length=length: part[:, :length])
        assert torch.allclose(network(query, prefix)[:, -1], full[:, length], atol=1e-5)


@torch.no_grad()
def test_tokens_hold_scaled_states_one_hot_actions_and_scaled_rewards():
    network = model(dataclasses.replace(INPUTS, reward_scale=4.0))
    query, context = random_context(2, 3)
    tokens = [network.query_token(network.features(query)), network.context_tokens(context)]
    tokens = torch.cat(tokens, dim=1)
    assert tokens.shape == (2, 4, INPUTS.width)
    assert (tokens[:, 0, :2] == (query.float() - 3) / 2).all()
    assert (tokens[:, 0, 2:] == 0).all()
    assert (tokens[:, 1:, :2] == (context.states.float() - 3) / 2).all()
    assert (tokens[:, 1:, 2:7].argmax(-1) == context.actions).all()
    assert (tokens[:, 1:, 2:7].sum(-1) == 1).all()
    assert (tokens[:, 1:, 7:9] == (context.next_states.float() - 3) / 2).all()
    assert (tokens[:, 1:, 9] == 4 * context.rewards.float()).all()


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
    query, context = random_context(2, 5)
    assert torch.equal(network(query, context), network(query, context))
    network.train()
    assert not torch.equal(network(query, context), network(query, context))


@pytest.mark.parametrize(
    ("config", "revision", "checksum"),
    [
        (DarkroomConfig(), 0, "d003f9e5b355"),
        (GaussianBanditConfig(horizon=50), 0, "93308ce6c919"),
        (MiniworldConfig(), 1, "38f85df73560"),
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


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 1, 12])
@torch.no_grad()
def test_the_last_answer_alone_is_that_of_the_whole_model(layers: int, length: int):
    network = model(layers=layers)
    queries, context = random_context(5, 12)
    context = context.map(lambda part: part[:, :length])
    query = network.query_token(network.features(queries))
    last = network.last_answer(torch.cat([query, network.context_tokens(context)], dim=1))
    whole = network(queries, context)[:, -1]
    assert torch.allclose(last, whole, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(whole[0], whole[1], atol=1e-3)
