"""The benchmarks: their counts, and a dry run of the one for another machine."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.transformer import Transformer
from tests.patience import HUNG

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.slow
def test_the_gpu_benchmark_runs_at_toy_size():
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu.py"), "--toy"],
        capture_output=True,
        text=True,
        timeout=HUNG,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    *configs, table = lines
    assert [line["name"].split()[1] for line in configs] == [
        *("paper_gaussian_bandit", "paper_darkroom", "paper_darkroom_large", "paper_miniworld")
    ]
    for line in configs:
        assert line["rate"] > 0 and line["mfu"] > 0
    assert (
        table["hours"] > 0
        and abs(table["hours"] - sum(c["hours"] for c in configs)) < 1e-2 * (table["hours"])
    )


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("stateless", [False, True])
def test_operations_are_those_of_torch_less_what_nobody_sees(monkeypatch, stateless, layers):
    monkeypatch.syspath_prepend(BENCHMARKS)
    step_operations = importlib.import_module("arithmetic").step_operations
    batch, horizon, asked, generator = 2, 7, 5, torch.Generator().manual_seed(layers)
    model = Transformer(
        ModelConfig(layers=layers, embedding=24, heads=2, head_dim=9),
        Inputs(3, horizon, (0.0, 0.0), (1.0, 1.0), stateless=stateless),
    )
    tokens = torch.randn(batch, horizon, model.inputs.width)
    query_tokens = torch.randn(batch, asked, model.inputs.width)
    prefixes = torch.randint(horizon + 1, (batch, asked), generator=generator)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.answer(tokens, query_tokens, prefixes)

    e, width = 24, 2 * 9
    unseen = batch * horizon * (horizon - 1) // 2 * (layers if stateless else layers - 1)
    if not stateless:
        seen = int(prefixes.sum()) + batch * asked
        unseen += (batch * asked * (horizon + asked) - seen) * layers
    needless = unseen * 2 * 2 * width
    if not stateless:  # the queries of the last block's transitions, which torch makes all the same
        needless += batch * horizon * 2 * e * width
    assert step_operations(model, prefixes) == 3 * (counter.get_total_flops() - needless)
