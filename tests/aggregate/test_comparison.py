import io
import math
import re

import numpy as np
import pandas as pd
import pytest

from sad_hpc.aggregate.comparison import (
    AVERAGE,
    EXACT,
    FAMILY_NAMES,
    IMPROVEMENTS,
    PAPER,
    better_by,
    comparison,
    family_name,
    implied_values,
    improvement,
)
from sad_hpc.aggregate.comparison_text import (
    comparison_csv,
    comparison_latex,
    comparison_markdown,
    percent_cells,
    value_cells,
)
from sad_hpc.aggregate.summary import COLUMNS, online_line, sentences
from sad_hpc.errors import UserError
from sad_hpc.experiment.methods import BASELINES

PAPER_OFFLINE = r"""
\emph{Gaussian Bandits} & $647.0\%$ & $508.9\%$ & $354.0\%$ & $-5.2\%$
\emph{Bernoulli Bandits} & $553.4\%$ & $426.8\%$ & $289.5\%$ & $-18.7\%$
\emph{Darkroom} & $2162.2\%$ & $2069.6\%$ & $149.3\%$ & $-1.3\%$
\emph{Darkroom-Large} & $6325.5\%$ & $6389.9\%$ & $266.8\%$ & $-14.9\%$
\emph{Miniworld} & $687.7\%$ & $684.2\%$ & $122.1\%$ & $-52.9\%$
Average & $2075.2\%$ & $2015.9\%$ & $236.3\%$ & $-18.6\%$
"""
PAPER_ONLINE = r"""
\emph{Gaussian Bandits} & $933.6\%$ & $942.5\%$ & $273.9\%$ & $-0.4\%$
\emph{Bernoulli Bandits} & $846.8\%$ & $830.9\%$ & $313.9\%$ & $-0.2\%$
\emph{Darkroom} & $3053.9\%$ & $2893.8\%$ & $41.7\%$ & $-3.4\%$
\emph{Darkroom-Large} & $10626.9\%$ & $10221.8\%$ & $24.7\%$ & $-0.1\%$
\emph{Miniworld} & $582.9\%$ & $580.1\%$ & $21.7\%$ & $-57.3\%$
Average & $3208.8\%$ & $3093.8\%$ & $135.2\%$ & $-12.3\%$
"""


def summary(family, means, mode="offline", metric="return", subset="all", learner=math.nan):
    rows = [
        dict.fromkeys(COLUMNS, 0.0)
        | {"task_family": family, "environment": family_name(family), "row": row, "mode": mode}
        | {"metric": metric, "subset": subset, "n_seeds": 4, "mean": mean}
        | {"bayes_optimal": learner, "exact_learner": math.nan}
        for row, mean in means.items()
    ]
    return pd.DataFrame(rows)


def ours(table, environment, baseline, column="SAD better by (%)"):
    row = table[(table["environment"] == environment) & (table["row"] == baseline)]
    return row[column].item()


def cells(table, environment):
    return next(row for row in percent_cells(table) if row[0] == environment)


def test_a_line_has_a_rows_values_and_shares():
    means = {"random": 1.0, "optimal": 41.0, "Bayes-optimal": 30.0, "SAD+": 28.0, "DPT*+": 29.0}
    means |= {"SAD": 20.0, "AD": 0.0, "DPT": 1.05, "DIT": 2.2}
    table = summary("darkroom", means, "online", learner=30.0)
    table = table.assign(std=0.5, ci_low=1.25, ci_high=22.0)
    first, *others = value_cells(comparison([table], "online"))
    interval = "[1.25, 22.00]"
    assert first == [
        *("Darkroom (return)", "AD", "0.00 ± 0.50", interval, "–", "0.0 %", "at chance", "–")
    ]
    names = ["AD", "DPT", "DIT", "SAD", "SAD+", "DPT*+", "Bayes-optimal", "optimal", "random"]
    assert [first[1], *(line[1] for line in others)] == names
    by_name = {line[1]: line[5:] for line in others}
    assert by_name["SAD+"] == ["93.3 %", "67.5 %", "–"]
    assert by_name["DIT"] == ["7.3 %", "3.0 %", "22.26"]  # 31.539 / 1.417
    assert by_name["SAD"] == ["66.7 %", "47.5 %", "31.54"]
    assert by_name["optimal"] == ["136.7 %", "100.0 %", "–"]
    (sad, *_) = value_cells(comparison([table[table["row"] == "SAD"].assign(n_seeds=1)], "online"))
    assert sad == ["Darkroom (return)", "SAD", "20.00", "–", "–", "66.7 %", "–", "–"]
    assert value_cells(comparison([table], "offline")) == []


def test_the_best_baseline_may_have_settings_of_its_own():
    means = {"DIT": 2.0, "DIT+": 9.0, "AD+": 8.0, "DPT*": 20.0, "SAD": 10.0, "random": 1.0}
    table = summary("darkroom", means, "online").assign(n_seeds=1)
    assert "the best baseline DIT+ 9.00, the best oracle DPT* 20.00" in sentences(table)[1]
    assert "9.00 (DIT+)" in online_line(table)


@pytest.mark.parametrize("metric", ["suboptimality", "regret"])
def test_of_a_loss_the_excess_over_the_bayes_optimal_learner_is_shown(metric):
    lost = {"SAD": 17.1, "Bayes-optimal": 9.2, "DPT*": 9.0}
    table = comparison([summary("gaussian_bandit", lost, metric=metric, learner=9.2)], "offline")
    assert ours(table, "Gaussian Bandits", "SAD", "excess_over_bayes") == pytest.approx(7.9)
    assert table["share_of_bayes"].isna().all()
    digits = {"suboptimality": "00", "regret": ""}[metric]
    shown = {line[1]: line[5] for line in value_cells(table)}
    excess = {"SAD": "+7.90", "Bayes-optimal": "+0.00", "DPT*": "-0.20"}
    assert shown == {name: text + digits for name, text in excess.items()}


def test_each_row_is_measured_against_the_learner_with_its_memory():
    rows = {"SAD+": 40.0, "SAD+, history": 42.0}
    rows |= {"Bayes-optimal": 42.6, "Bayes-optimal, history": 43.6}
    table = summary("darkroom", rows)
    table["bayes_optimal"] = [42.6, 43.6, 42.6, 43.6]
    shown = {line[1]: line[5] for line in value_cells(comparison([table], "offline"))}
    assert shown == {
        "SAD+": "93.9 %",
        "SAD+, history": "96.3 %",
        "Bayes-optimal": "100.0 %",
        "Bayes-optimal, history": "100.0 %",
    }


def test_exact_learners_have_percentages_of_their_own_and_bandits_a_mean_over_lengths():
    means = {"AD": 0.36, "DIT": 0.3, "SAD": 0.1, "optimal": 0.0, "random": 0.36}
    last = summary("gaussian_bandit", means, metric="suboptimality")
    curve = last.assign(mode="lengths", mean=2 * last["mean"])
    curve["exact_learner"] = [0.4, 0.25, 0.05, math.nan, math.nan]
    table = comparison([pd.concat([last, curve])], "offline")
    assert ours(table, "Gaussian Bandits", "SAD", "mean") == pytest.approx(0.2)
    assert ours(table, "Gaussian Bandits", "AD", EXACT) == pytest.approx(700)
    assert ours(table, "Gaussian Bandits", "DIT", EXACT) == pytest.approx(400)
    shown = cells(table, "Gaussian Bandits")
    assert shown[1] == "at chance (exact 700.0 %; paper 647.0 %)"
    assert shown[3] == "200.0 % (exact 400.0 %; paper 354.0 %)"
    assert {line[1]: line[4] for line in value_cells(table)}["SAD"] == "0.0500"


@pytest.mark.parametrize(
    ("mode", "metric"), [("offline", "suboptimality"), ("online", "regret"), ("online", "return")]
)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_implied_values_have_the_papers_percentages(mode, metric, family):
    values = {"AD": 3.0, **implied_values(mode, family, metric, 3.0)}
    for baseline, percent in zip(BASELINES, IMPROVEMENTS[mode][family], strict=True):
        assert improvement(metric, values["SAD"], values[baseline]) == pytest.approx(percent)


def test_the_paper_implies_nothing_of_other_families_or_without_random_play():
    assert implied_values("online", "permuted_darkroom", "return", 1.0) == {}
    assert implied_values("offline", "darkroom", "return", 1.0) == {}, "its AD was worse"
    table = comparison([summary("darkroom", {"SAD": 20.0})], "offline")
    assert table["implied_by_paper"].isna().all()


@pytest.mark.parametrize("metric", ["suboptimality", "regret"])
def test_the_share_of_what_is_lost_is_that_of_random_play(metric):
    lost = {"SAD": 0.03, "AD": 0.4, "DPT": 0.31, "DIT": 0.26, "random": 0.3, "optimal": 0.0}
    table = comparison([summary("gaussian_bandit", lost, metric=metric)], "offline")
    for method, mean in lost.items():
        share = ours(table, "Gaussian Bandits", method, "share_of_optimum")
        assert share == pytest.approx(1 - mean / 0.3)
        assert ours(table, "Gaussian Bandits", method, "at_chance") == (method in ("AD", "DPT"))


@pytest.mark.parametrize(
    ("mean", "std", "seeds", "expected"),
    [
        (1.0, 0.0, 4, True),
        (0.1, 0.0, 4, True),  # worse than chance
        (2.0, 0.0, 4, False),
        (1.3, 0.0, 4, True),  # seeds agree, but on nothing
        (2.0, 0.62, 4, False),  # its interval reaches down to 1.01
        (2.0, 0.64, 4, True),
        (20.0, 90.0, 4, False),  # unsure, but far from random play
        (2.0, 0.0, 1, True),  # one seed has no interval
        (6.0, 0.0, 1, False),
    ],
)
def test_chance_is_what_neither_seeds_nor_size_tell_from_random_play(mean, std, seeds, expected):
    table = summary("darkroom", {"SAD": 20.0, "DIT": mean, "random": 1.0, "optimal": 41.0})
    table.loc[table["row"] == "DIT", ["std", "n_seeds"]] = std, seeds
    assert ours(comparison([table], "offline"), "Darkroom", "DIT", "at_chance") == expected


def test_nothing_is_a_percentage_over_chance():
    means = {"SAD": 20.0, "AD": 1.0, "DPT": 2.0, "random": 1.0, "optimal": 41.0}
    table = comparison([summary("darkroom", means)], "offline")
    assert cells(table, "Darkroom")[1:3] == ["at chance (paper 2162.2 %)",
                                             "900.0 % (paper 2069.6 %)"]  # fmt: skip
    assert cells(table, AVERAGE)[1:3] == ["– (paper 2075.2 %)", "900.0 % (1 of 5; paper 2015.9 %)"]
    assert "at chance (paper $2162.2" in comparison_latex(table, "offline")


@pytest.mark.parametrize(("mode", "text"), [("offline", PAPER_OFFLINE), ("online", PAPER_ONLINE)])
def test_paper_numbers_are_the_papers(mode, text):
    table = comparison([], mode)
    lines = text.strip().splitlines()
    assert len(lines) * len(BASELINES) == len(table)
    for line in lines:
        environment = re.sub(r"\\emph\{(.*)\}", r"\1", line.split(" & ")[0])
        printed = [float(number) for number in re.findall(r"\$(-?[\d.]+)\\%\$", line)]
        assert printed == [ours(table, environment, baseline, PAPER) for baseline in BASELINES]


@pytest.mark.parametrize("mode", ["offline", "online"])
def test_paper_averages_are_means_of_the_papers_rows(mode):
    rows = [IMPROVEMENTS[mode][family] for family in FAMILY_NAMES]
    assert np.mean(rows, axis=0) == pytest.approx(IMPROVEMENTS[mode][AVERAGE], abs=0.05)


def test_improvement_follows_the_papers_definitions():
    assert improvement("return", 30.0, 10.0) == pytest.approx(200.0)
    assert improvement("return", 10.0, 20.0) == pytest.approx(-50.0)
    assert improvement("regret", 10.0, 40.0) == pytest.approx(300.0)
    assert improvement("suboptimality", 0.2, 0.1) == pytest.approx(-50.0)
    assert improvement("return", -150.0, -200.0) == pytest.approx(25.0), "better is positive"


def test_improvement_over_nothing_is_infinite():
    assert improvement("return", 5.0, 0.0) == math.inf
    assert improvement("regret", 0.0, 5.0) == math.inf
    assert improvement("return", 0.0, 0.0) == improvement("regret", 0.0, 0.0) == 0.0
    table = comparison([summary("darkroom", {"SAD": 5.0, "DPT": 0.0})], "offline")
    assert "∞ (paper 2069.6 %)" in comparison_markdown(table, "offline")
    assert r"$\infty$ (paper $2069.6\%$)" in comparison_latex(table, "offline")


def test_only_what_was_computed_is_filled():
    table = comparison([summary("darkroom", {"SAD": 30.0, "DPT": 10.0})], "offline")
    assert ours(table, "Darkroom", "DPT") == pytest.approx(200.0)
    assert table[better_by("SAD")].notna().sum() == 2  # the cell and the average of its column
    assert cells(table, "Darkroom")[1] == "– (paper 2162.2 %)"


def test_average_is_over_the_rows_that_are_there_and_says_how_many():
    summaries = [
        summary("darkroom", {"SAD": 30.0, "DPT": 10.0, "DPT*": 40.0}),
        summary("gaussian_bandit", {"SAD": 0.1, "DPT": 0.5}, metric="suboptimality"),
    ]
    table = comparison(summaries, "offline")
    assert ours(table, AVERAGE, "DPT") == pytest.approx((200 + 400) / 2)
    assert ours(table, AVERAGE, "DPT*") == pytest.approx(-25.0)
    average = cells(table, AVERAGE)
    assert average[2] == "300.0 % (2 of 5; paper 2015.9 %)"
    assert average[4] == "-25.0 % (1 of 5; paper -18.6 %)"
    assert average[1] == "– (paper 2075.2 %)"


def test_other_families_are_shown_but_not_averaged():
    summaries = [
        summary("darkroom_5x5", {"SAD": 9.0, "DPT": 1.0}),
        summary("darkroom", {"SAD": 30.0, "DPT": 10.0}),
    ]
    table = comparison(summaries, "offline")
    assert ours(table, "Darkroom 5x5", "DPT") == pytest.approx(800.0)
    assert ours(table, AVERAGE, "DPT") == pytest.approx(200.0)
    assert "800.0 % (paper –)" in comparison_markdown(table, "offline")


def test_an_environment_of_ones_own_stands_without_the_papers():
    table = comparison([summary("inventory", {"SAD": 3.0, "DIT": 2.0, "random": 1.0})], "offline")
    assert set(table["environment"]) == {"Inventory"}
    assert [row[0] for row in percent_cells(table)] == ["Inventory"]
    assert "Darkroom" not in comparison_markdown(table, "offline")
    latex = comparison_latex(table, "offline")
    assert r"\emph{Inventory}" in latex and "hline\n\\hline" not in latex


def test_variants_of_sad_have_rows_and_an_average_of_their_own():
    summaries = [
        summary("darkroom", {"SAD": 30.0, "SAD, N_ep = 4": 40.0, "DPT": 10.0}),
        summary("miniworld", {"SAD": 3.0, "DPT": 1.0}),
    ]
    table = comparison(summaries, "offline")
    variant = better_by("SAD, N_ep = 4")
    for environment in ("Darkroom", AVERAGE):
        assert ours(table, environment, "DPT") == pytest.approx(200.0)
        assert ours(table, environment, "DPT", variant) == pytest.approx(300.0)
    titles = [row[0] for row in percent_cells(table)]
    assert titles[6:] == ["Darkroom: SAD, N_ep = 4", "Average: SAD, N_ep = 4"]
    page = comparison_markdown(table, "offline")
    assert r"| Average: SAD, N\_ep = 4 | – | 300.0 % (1 of 5) |" in page
    assert r"| Darkroom (return) | SAD, N\_ep = 4 | 40.00 ± 0.00 | – | – | – | – |" in page
    latex = comparison_latex(table, "offline")
    assert latex.count("\\hline\nAverage") == 2


def test_modes_and_subsets_are_kept_apart():
    summaries = [
        summary("darkroom", {"SAD": 30.0, "DPT": 10.0}),
        summary("darkroom", {"SAD": 90.0, "DPT": 10.0}, subset="reward_seen"),
        summary("darkroom", {"SAD": 20.0, "DPT": 10.0}, mode="online"),
    ]
    assert ours(comparison(summaries, "offline"), "Darkroom", "DPT") == pytest.approx(200.0)
    assert ours(comparison(summaries, "online"), "Darkroom", "DPT") == pytest.approx(100.0)


def test_two_results_for_one_cell_are_refused():
    table = summary("darkroom", {"SAD": 30.0})
    with pytest.raises(UserError, match="SAD on darkroom"):
        comparison([table, table], "offline")


def test_markdown_and_latex_say_what_the_csv_says():
    means = {"SAD": 24.123, "AD": 1.5, "DPT": 0.0, "DIT": 11.7, "DPT*": 28.9}
    summaries = [summary("darkroom", means), summary("miniworld", {"SAD": 3.0, "DIT": 7.0})]
    made = comparison(summaries, "offline")
    table = pd.read_csv(io.StringIO(comparison_csv({"offline": made})))
    first, values, markdown = comparison_markdown(made, "offline").split("### ")[:3]
    assert first == ""
    assert "24.12 ± 0.00" in values and "7.00 ± 0.00" in values
    latex = comparison_latex(made, "offline")
    markdown_rows = [line for line in markdown.splitlines() if line.startswith("| ")][2:]
    percent = latex.split("tab_compare_offline")[1]
    latex_rows = [line for line in percent.splitlines() if " & " in line][1:]
    environments = [*FAMILY_NAMES.values(), AVERAGE]
    for environment, in_markdown, in_latex in zip(
        environments, markdown_rows, latex_rows, strict=True
    ):
        expected = [
            ours(table, environment, baseline, column)
            for baseline in BASELINES
            for column in (better_by("SAD"), PAPER)
        ]
        assert _numbers(in_markdown, " %", "–") == _rounded(expected)
        assert _numbers(in_latex.replace("$", "").replace(r"\infty", "∞"), r"\%", "--") == _rounded(
            expected
        )
    assert latex.count("{") == latex.count("}")
    assert r" & DPT$^*$ & " in latex and r"| DPT\* |" in values


def _rounded(values):
    return ["–" if math.isnan(v) else "∞" if math.isinf(v) else f"{v:.1f}" for v in values]


def _numbers(line, percent, dash):
    found = re.findall(rf"(-?\d+\.\d){re.escape(percent)}|({re.escape(dash)})|(∞)", line)
    return [number or ("–" if gap else infinity) for number, gap, infinity in found]
