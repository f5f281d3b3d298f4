"""The comparison as Markdown, CSV and LaTeX: values, the paper's percentages, and differences
between rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sad_hpc.aggregate.comparison import (
    AVERAGE,
    CHANCE,
    EXACT,
    FAMILY_NAMES,
    NOTHING,
    PAPER,
    better_by,
    contenders,
)
from sad_hpc.aggregate.formats import (
    NOT_COMPUTED,
    RULE,
    Latex,
    csv_text,
    latex,
    latex_line,
    latex_table,
    markdown,
    markdown_table,
)
from sad_hpc.aggregate.summary import mean_and_std, number
from sad_hpc.experiment.methods import BASELINES

AT_CHANCE = "at chance"


@dataclass(frozen=True)
class Part:
    """A table of the comparison, for each mode."""

    title: str
    """Title of the tables of all modes."""
    heading: str
    """Title of one mode's table, with braces for the mode."""
    header: tuple[str, ...]
    text: str
    """Explanation of the columns."""


VALUES = Part(
    "Every row beside Bayes-optimal, optimal and random play",
    "Every row, {}",
    (
        "Environment",
        "Row",
        "Mean ± std",
        "95 % interval",
        "Exact learner",
        "Of Bayes-optimal",
        "From random to optimal",
        "Paper, implied",
    ),
    "Mean ± standard deviation over seeds, and the 95 % t interval of the mean. "
    "Exact learner: what a model without any error would reach with the labels of the row, at "
    "temperature 1. "
    "Of Bayes-optimal: a return divided by that of the Bayes-optimal learner with the same memory; "
    "for suboptimality and regret, the excess over its loss. "
    "From random to optimal: (value - random) / (optimal - random). "
    f'"{AT_CHANCE}": less than {100 * NOTHING:.0f} % of that way, or less than '
    f"{100 * CHANCE:.0f} % with a 95 % t interval over seeds that includes random play. "
    "Paper, implied: the paper prints percentages only; these values follow if its AD plays at "
    f"random and random play returns what ours does. {NOT_COMPUTED}: not known.",
)
PERCENTAGES = Part(
    "Improvement of SAD over each baseline, beside the paper's",
    "Improvement of SAD over each baseline, {}, beside the paper's",
    ("Environment", *(f"SAD vs {baseline}" for baseline in BASELINES)),
    "The paper's measure: (baseline - SAD) / SAD for suboptimality and regret, "
    "(SAD - baseline) / baseline for returns. In brackets: the same between the exact learners of "
    "both rows' labels, and the paper's numbers. Offline numbers of bandits are means over context "
    "lengths as in the paper's code if these were evaluated, else those of the longest context, to "
    "which the paper's do not compare. "
    f'"{AT_CHANCE}": the baseline plays at random, so that a percentage has no meaning. Averages '
    f"count the environments that have a percentage. {NOT_COMPUTED}: not computed, or not in the "
    "paper.",
)
CLAIMS = Part(
    "Differences between rows",
    "Differences between rows, {}",
    ("Environment", "Rows", "Seeds", "Better by", "95 % interval", "p", "p, Holm"),
    "Mean difference over the seeds that both rows have, positive where the first row is better, "
    "with its 95 % t interval; the test is paired by seed. p, Holm: corrected for all lines of the "
    "environment.",
)


def comparison_parts(
    table: pd.DataFrame, claimed: pd.DataFrame | None
) -> list[tuple[Part, list[list[str]]]]:
    """Return the lines of each part that has any.

    Args:
        table: the `comparison` of one mode.
        claimed: its `claims`, if they were made.
    """
    cells = {VALUES: value_cells(table), PERCENTAGES: percent_cells(table)}
    if claimed is not None:
        cells[CLAIMS] = claim_cells(claimed)
    return [(part, lines) for part, lines in cells.items() if lines]


def value_cells(table: pd.DataFrame) -> list[list[str]]:
    """Return the lines of VALUES: each environment and policy with numbers."""
    return [_value_line(row) for _, row in table[table["mean"].notna()].iterrows()]


def _value_line(row: pd.Series) -> list[str]:
    """Return a line such as `Darkroom (return)`, `SAD`, `26.64 ± 0.62`, `[26.16, 27.12]`, `36.18`,
    `62.5 %`, `60.1 %` and `34.05`."""
    metric, interval = row["metric"], NOT_COMPUTED
    if row["n_seeds"] > 1 and row["ci_low"] < row["ci_high"]:
        interval = f"[{number(metric, row['ci_low'])}, {number(metric, row['ci_high'])}]"
    return [
        f"{row['environment']} ({metric})",
        row["row"],
        mean_and_std(row),
        interval,
        _number(metric, row["exact_learner"]),
        _of_bayes(row),
        AT_CHANCE if row["at_chance"] else _share(row["share_of_optimum"]),
        _number(metric, row["implied_by_paper"]),
    ]


def _number(metric: str, value: float) -> str:
    return NOT_COMPUTED if math.isnan(value) else number(metric, value)


def _of_bayes(row: pd.Series) -> str:
    """Return a text such as `94.7 %` for a return, or `+7.80` for a loss."""
    excess = row["excess_over_bayes"]
    if math.isnan(excess):
        return _share(row["share_of_bayes"])
    return ("+" if excess >= 0 else "") + number(row["metric"], excess)


def _share(value: float) -> str:
    return NOT_COMPUTED if math.isnan(value) else f"{100 * value:.1f} %"


def claim_text(line: Any) -> str:
    """Return a text such as `+12.31 (95 % interval +11.02 to +13.60, corrected p = 0.0012)`."""
    low, high = _signed(line.metric, line.low), _signed(line.metric, line.high)
    mean = _signed(line.metric, line.difference)
    return f"{mean} (95 % interval {low} to {high}, corrected p = {line.p_holm:.2g})"


def claim_cells(table: pd.DataFrame) -> list[list[str]]:
    """Return the lines of CLAIMS, from `claims`."""
    return [
        [
            f"{line.environment} ({line.metric})",
            f"{line.row} - {line.other}",
            f"{line.n_seeds}",
            _signed(line.metric, line.difference),
            f"{_signed(line.metric, line.low)} to {_signed(line.metric, line.high)}",
            f"{line.p:.2g}",
            f"{line.p_holm:.2g}",
        ]
        for line in table.itertuples()
    ]


def _signed(metric: str, value: float) -> str:
    return ("+" if value >= 0 else "") + number(metric, value)


def percent_cells(table: pd.DataFrame) -> list[list[str]]:
    """Return the lines of PERCENTAGES, with cells such as `149.0 % (paper 149.3 %)`.

    All environments and their average come first for SAD, then for every other row of SAD.  A row
    that is compared with no baseline is left out.
    """
    rows = []
    for name in contenders(table["row"].tolist()):
        lines = []
        for environment, part in table.groupby("environment", sort=False):
            by_method = part.set_index("row", drop=False)
            if name in ("SAD", *by_method.index) or environment == AVERAGE:
                cells = [_percent_cell(table, by_method, name, baseline) for baseline in BASELINES]
                lines.append([_title(str(environment), name), *cells])
        cells = [cell for _, *own in lines for cell in own]
        if not all(cell.startswith(NOT_COMPUTED) for cell in cells):
            rows += lines
    return rows


def _percent_cell(table: pd.DataFrame, part: pd.DataFrame, contender: str, baseline: str) -> str:
    if baseline not in part.index:
        return NOT_COMPUTED
    row, column, remarks = part.loc[baseline], better_by(contender), []
    ours = AT_CHANCE if row["at_chance"] else _percent(row[column])
    if row["environment"] == AVERAGE and ours != NOT_COMPUTED:
        own = table[table["environment"].isin(FAMILY_NAMES.values())]
        averaged = own.loc[own["row"] == baseline, column].count()
        remarks.append(f"{averaged} of {len(FAMILY_NAMES)}")
    if contender == "SAD":
        if not math.isnan(row[EXACT]):
            remarks.append(f"exact {_percent(row[EXACT])}")
        remarks.append(f"paper {_percent(row[PAPER])}")
    return f"{ours} ({'; '.join(remarks)})" if remarks else ours


def _title(environment: str, contender: str) -> str:
    """Return a title such as `Darkroom`, or `Darkroom: SAD, N_ep = 64` for a variant."""
    return environment if contender == "SAD" else f"{environment}: {contender}"


def _percent(value: float) -> str:
    if math.isnan(value):
        return NOT_COMPUTED
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.1f} %"


def comparison_markdown(table: pd.DataFrame, mode: str, claimed: pd.DataFrame | None = None) -> str:
    """Return the `comparison_parts` of one mode as Markdown."""
    texts = []
    for part, lines in comparison_parts(table, claimed):
        texts += [f"### {part.heading.format(mode)}", markdown(part.text)]
        texts.append(markdown_table(part.header, lines).strip())
    return "\n\n".join(texts) + "\n"


def comparison_csv(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the `comparison` of each mode as one CSV table."""
    parts = [table.assign(mode=mode) for mode, table in tables.items()]
    return csv_text(pd.concat(parts, ignore_index=True))


def comparison_latex(table: pd.DataFrame, mode: str, claimed: pd.DataFrame | None = None) -> str:
    """Return the `comparison_parts` as LaTeX; the percentages have the paper's layout."""
    writers = {VALUES: _values_latex, PERCENTAGES: _percent_latex, CLAIMS: _claims_latex}
    parts = comparison_parts(table, claimed)
    return "\n".join(writers[part](lines, mode) for part, lines in parts)


def _values_latex(cells: Sequence[Sequence[str]], mode: str) -> str:
    """Return the table of values, with a rule between environments."""
    lines: list[str] = []
    for before, line in zip([None, *cells], cells, strict=False):
        if before is not None and before[0] != line[0]:
            lines.append(RULE)
        lines.append(latex_line(line))
    caption = f"Every row in the {mode} evaluation."
    return latex_table(caption, f"tab_values_{mode}", "ll|rcrrrr", VALUES.header, lines)


def _percent_latex(rows: Sequence[Sequence[str]], mode: str) -> str:
    caption = (
        f"Performance improvements of SAD compared to baselines in the {mode} evaluation, beside "
        "the paper's."
    )
    lines: list[str] = []
    for first, *others in rows:
        if first.partition(":")[0] == AVERAGE:
            lines += [RULE, latex_line([first, *others]), RULE]
        else:
            lines.append(latex_line([Latex(rf"\emph{{{latex(first)}}}"), *others]))
    if lines and lines[-1] == RULE:
        lines.pop()  # the table's template ends with rules
    return latex_table(caption, f"tab_compare_{mode}", "c|ccc|c", PERCENTAGES.header, lines)


def _claims_latex(rows: Sequence[Sequence[str]], mode: str) -> str:
    caption = f"Differences between rows in the {mode} evaluation."
    lines = [latex_line(cells) for cells in rows]
    return latex_table(caption, f"tab_claims_{mode}", "lll|rrrr", CLAIMS.header, lines)
