"""The comparison as cells of text: values, percentages as the paper has them, and SAD against its
oracle."""

import math

import pandas as pd

from sad_hpc.aggregate.comparison import CHANCE, NOTHING, PAPER, better_by, contenders
from sad_hpc.aggregate.paper import AVERAGE, FAMILY_NAMES
from sad_hpc.aggregate.summary import mean_and_std, number
from sad_hpc.aggregate.tables import NOT_COMPUTED
from sad_hpc.experiment.methods import BASELINES

AT_CHANCE = "at chance"
VALUES_HEADER = [
    "Environment",
    "Row",
    "Mean ± std",
    "95 % interval",
    "Of the ideal",
    "From random to optimal",
    "Paper, implied",
]
PERCENT_HEADER = ["Environment", *(f"SAD vs {baseline}" for baseline in BASELINES)]
ORACLE_HEADER = ["Environment", "Rows", "Better by", "95 % interval", "Over seeds"]
VALUES_TEXT = (
    "Mean ± standard deviation over training seeds, and the 95 % bootstrap interval of the mean. "
    "Of the ideal: a return divided by that of the ideal learner, which knows the task family and "
    "remembers what the row does; of suboptimality and regret, what is lost beyond its loss. "
    "From random to optimal: (value - random) / (optimal - random), which for suboptimality and "
    f'regret is 1 - value / random. "{AT_CHANCE}": less than {100 * NOTHING:.0f} % of that way, or '
    f"less than {100 * CHANCE:.0f} % and not better than random play by a 95 % t interval over "
    "seeds. "
    "Paper, implied: the paper prints no values; these follow from its percentages if its AD is at "
    f"random play, and random play is ours. {NOT_COMPUTED}: not known."
)
PERCENT_TEXT = (
    "The paper's measure: (baseline - SAD) / SAD for suboptimality and regret, (SAD - baseline) / "
    f'baseline for returns; its own numbers are in brackets. "{AT_CHANCE}": the baseline has '
    "learned nothing, so a percentage over it would say nothing. Averages are over so many of the "
    f"paper's environments as have a percentage. {NOT_COMPUTED}: not computed, or not in the paper."
)
ORACLE_TEXT = (
    "The same measure over the oracle that was trained in the same way, on optimal actions, with "
    "Fieller's 95 % interval: by seed where both rows have the same training seeds (paired), and "
    "Welch's otherwise."
)


def value_cells(table: pd.DataFrame) -> list[list[str]]:
    """The rows below VALUES_HEADER: an environment and row or reference that has numbers."""
    return [_value_line(row) for _, row in table[table["mean"].notna()].iterrows()]


def _value_line(row: pd.Series) -> list[str]:
    """Such as `Darkroom (return)`, `SAD`, `26.64 ± 0.62`, `[26.16, 27.12]`, `62.5 %`, `60.1 %` and
    `34.05`."""
    metric, interval = row["metric"], NOT_COMPUTED
    if row["n_seeds"] > 1 and row["ci_low"] < row["ci_high"]:
        interval = f"[{number(metric, row['ci_low'])}, {number(metric, row['ci_high'])}]"
    return [
        f"{row['environment']} ({metric})",
        row["method"],
        mean_and_std(row),
        interval,
        _of_ideal(row),
        AT_CHANCE if row["at_chance"] else _share(row["share_of_optimum"]),
        NOT_COMPUTED
        if math.isnan(row["implied_by_paper"])
        else number(metric, row["implied_by_paper"]),
    ]


def _of_ideal(row: pd.Series) -> str:
    """`94.7 %` of a return; `+7.80` of a loss."""
    excess = row["excess_over_ideal"]
    if math.isnan(excess):
        return _share(row["share_of_ideal"])
    return ("+" if excess >= 0 else "") + number(row["metric"], excess)


def _share(value: float) -> str:
    return NOT_COMPUTED if math.isnan(value) else f"{100 * value:.1f} %"


def oracle_cells(table: pd.DataFrame) -> list[list[str]]:
    """The rows below ORACLE_HEADER."""
    rows = []
    for _, row in table[table["over_oracle"].notna()].iterrows():
        ends = row["over_oracle_low"], row["over_oracle_high"]
        interval = NOT_COMPUTED if any(map(math.isnan, ends)) else " to ".join(map(_percent, ends))
        rows.append(
            [
                str(row["environment"]),
                f"{row['method']} vs {row['oracle']}",
                _percent(row["over_oracle"]),
                interval,
                "paired" if row["paired"] else "Welch",
            ]
        )
    return rows


def percent_cells(table: pd.DataFrame) -> list[list[str]]:
    """The rows below PERCENT_HEADER, such as `149.0 % (paper 149.3 %)`: all environments and their
    average, then the same of every variant of SAD where it has numbers."""
    rows = []
    for name in contenders(table["method"].tolist()):
        for environment, part in table.groupby("environment", sort=False):
            by_method = part.set_index("method", drop=False)
            if name in ("SAD", *by_method.index) or environment == AVERAGE:
                cells = [_percent_cell(table, by_method, name, baseline) for baseline in BASELINES]
                rows.append([_title(str(environment), name), *cells])
    return rows


def _percent_cell(table: pd.DataFrame, part: pd.DataFrame, contender: str, baseline: str) -> str:
    if baseline not in part.index:
        return NOT_COMPUTED
    row, column, remarks = part.loc[baseline], better_by(contender), []
    ours = AT_CHANCE if row["at_chance"] else _percent(row[column])
    if row["environment"] == AVERAGE and ours != NOT_COMPUTED:
        own = table[table["environment"].isin(FAMILY_NAMES.values())]
        averaged = own.loc[own["method"] == baseline, column].count()
        remarks.append(f"{averaged} of {len(FAMILY_NAMES)}")
    if contender == "SAD":
        remarks.append(f"paper {_percent(row[PAPER])}")
    return f"{ours} ({'; '.join(remarks)})" if remarks else ours


def _title(environment: str, contender: str) -> str:
    """`Darkroom`, or `Darkroom: SAD, N_ep = 64` of a variant."""
    return environment if contender == "SAD" else f"{environment}: {contender}"


def _percent(value: float) -> str:
    if math.isnan(value):
        return NOT_COMPUTED
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.1f} %"
