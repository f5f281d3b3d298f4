"""Claims: paired differences, their coverage, and Holm's correction."""

import numpy as np
import pandas as pd
import pytest

from sad_hpc.aggregate.claims import claims, holm, paired_difference
from sad_hpc.aggregate.comparison import comparison
from sad_hpc.aggregate.comparison_text import comparison_latex, comparison_markdown
from sad_hpc.aggregate.summary import SEED_COLUMNS

from .test_comparison import summary


def test_claims_are_paired_differences_corrected_for_all_of_a_table():
    by_seed = {
        "SAD+": [38.0, 39.0, 40.0], "DPT*+": [40.0, 41.0, 39.0],
        "SAD+, history": [42.0, 42.0, 42.0], "DPT*+, history": [40.0, 40.0, 40.0],
        "SAD": [30.0, 31.0, 33.0], "DIT": [10.0, 9.0, 11.0],
    }  # fmt: skip
    summaries = [summary("darkroom", {name: np.mean(each) for name, each in by_seed.items()})]
    seeds = pd.DataFrame(
        [("darkroom", name, "offline", "all", seed, value)
         for name, values in by_seed.items() for seed, value in enumerate(values)],
        columns=SEED_COLUMNS,
    )  # fmt: skip
    made = claims(summaries, [seeds], [[]], "offline")
    pairs = list(zip(made["row"], made["other"], strict=True))
    assert set(pairs) == {
        ("SAD", "DIT"), ("SAD+", "DIT"), ("SAD+", "SAD"), ("SAD+", "DPT*+"),
        ("SAD+, history", "DPT*+, history"),
    }  # fmt: skip
    assert made["p_holm"].tolist() == holm(made["p"].tolist())
    by_pair = made.set_index(["row", "other"])
    assert by_pair.loc[("SAD+", "SAD"), "difference"] == pytest.approx(23 / 3)
    assert by_pair.loc[("SAD+, history", "DPT*+, history"), ["low", "high"]].tolist() == [2.0, 2.0]
    assert len(claims(summaries, [seeds], [[]], "online")) == 0
    table = comparison(summaries, "offline")
    shown = comparison_markdown(table, "offline", claimed=made)
    assert "| SAD+ - DPT\\*+ | 3 | -1.00 |" in shown
    latex = comparison_latex(table, "offline", claimed=made)
    assert r"SAD+ - DPT$^*$+" in latex and latex.count("{") == latex.count("}")
    assert [line for line in latex.splitlines() if "%" in line and r"\%" not in line] == []
    losses = claims([summaries[0].assign(metric="regret")], [seeds], [[]], "offline")
    stated = claims(summaries, [seeds], [[("DPT*+", "SAD+"), ("SAD", "AD")]], "offline")
    assert stated[["row", "other"]].to_numpy().tolist() == [["DPT*+", "SAD+"]]
    assert stated["p_holm"].tolist() == stated["p"].tolist()
    worse = losses.set_index(["row", "other"]).loc[("SAD+", "SAD")]
    assert worse["difference"] == pytest.approx(-23 / 3) and worse["low"] < worse["high"]


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_differences_are_paired_and_their_intervals_cover(shift: float):
    generator, covered, found = np.random.default_rng(5), [], []
    for _ in range(1500):
        shared = generator.normal(scale=5.0, size=5)
        x, y = (shared + generator.normal(size=5) for _ in range(2))
        each = paired_difference(dict(enumerate(x + shift)), dict(enumerate(y)))
        assert each is not None
        covered.append(each.low <= shift <= each.high)
        found.append(each.p < 0.05)
        assert found[-1] == (not each.low <= 0 <= each.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
    assert np.mean(found) == pytest.approx(0.05, abs=0.02) if not shift else np.mean(found) > 0.1


def test_only_common_seeds_count():
    found = paired_difference({0: 3.0, 1: 5.0, 2: 9.0}, {1: 4.0, 0: 3.0, 7: 1.0})
    assert found is not None and (found.n_seeds, found.mean) == (2, 0.5)
    assert paired_difference({0: 3.0}, {0: 4.0}) is None
    same = paired_difference({0: 3.0, 1: 3.0}, {0: 1.0, 1: 1.0})
    assert same is not None and (same.low, same.high, same.p) == (2.0, 2.0, 0.0)


def test_holms_correction_has_its_known_values():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holms_correction_keeps_the_rate_of_any_false_claim():
    generator = np.random.default_rng(6)
    rejected = [min(holm(generator.random(8).tolist())) < 0.05 for _ in range(4000)]
    assert np.mean(rejected) == pytest.approx(0.05, abs=0.015)
