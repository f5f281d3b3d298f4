"""`sad-hpc theory`: calculators for the theorems, and their statements about a config."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sad_hpc.experiment.experiment import Experiment
    from sad_hpc.experiment.sections import DataConfig
    from sad_hpc.tasks.bandit import BanditFamily
    from sad_hpc.theory.trust import Trust

DELTA = 0.05
"""The delta for which `config` prints the requirements of a theorem."""

EXAMPLES = """examples:
  sad-hpc theory bandit --bound 0.3 --gap 0.1 --delta 0.05
  sad-hpc theory bandit --bound 0.3 --gap 0.1 --pulls 320
  sad-hpc theory mdp --bound 1 --kappa 0.01 --gamma 0.9 --delta 0.05 --horizon 80
  sad-hpc theory mdp --bound 1 --kappa 0.01 --gamma 0.9 --episodes 1000 --horizon 80
  sad-hpc theory config configs/darkroom.yaml data.trust_horizon=10
  sad-hpc theory assumption configs/darkroom.yaml --gamma 0.99
  sad-hpc theory horizon configs/darkroom.yaml --agreement 0.85
  sad-hpc theory labels configs/darkroom.yaml
  sad-hpc theory learners configs/darkroom.yaml
  sad-hpc theory paper"""


def add_theory(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    text = "Theorems 1 and 2 and Assumption 2, for numbers or for a config."
    parser = commands.add_parser(
        "theory",
        help=text,
        description=text,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = parser.add_subparsers(dest="part", metavar="WHAT", required=True)

    def add(
        name: str, run: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        part = parts.add_parser(name, help=text, description=text)
        part.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        part.set_defaults(run=run)
        return part

    part = add("bandit", _bandit, "Theorem 1: N for a trustworthiness, or the inverse.")
    text = "B: upper bound of |reward|; the standard deviation for Gaussian rewards"
    part.add_argument("--bound", type=float, required=True, help=text)
    part.add_argument("--gap", type=float, required=True, help="best mean minus second best")
    given = part.add_mutually_exclusive_group(required=True)
    given.add_argument("--delta", type=float, help="1 - trustworthiness")
    given.add_argument("--pulls", type=int, help="N, pulls of every arm")

    part = add("mdp", _mdp, "Theorem 2: N_ep for a trustworthiness, or the inverse.")
    part.add_argument("--bound", type=float, required=True, help="B: upper bound of |reward|")
    part.add_argument("--kappa", type=float, required=True, help="smallest gap of Q over states")
    part.add_argument("--gamma", type=float, required=True, help="discount")
    text = "N: a rollout has the rewards of t = 0 .. N; trust_horizon in a config is N + 1"
    part.add_argument("--horizon", type=int, required=True, help=text)
    given = part.add_mutually_exclusive_group(required=True)
    given.add_argument("--delta", type=float, help="1 - trustworthiness")
    given.add_argument("--episodes", type=int, help="N_ep, rollouts of every action")

    part = add("config", _config, "A theorem's level for a config's labels, and their accuracy.")
    _add_config(part)
    part = add("labels", _labels, "A figure of label accuracy against N and N_ep.")
    _add_config(part)
    part.add_argument("--results", type=Path, default=Path("results"), help="folder of tables")
    part = add("learners", _learners, "What exact learners of each method's labels reach.")
    _add_config(part)
    part.add_argument("--results", type=Path, default=Path("results"), help="folder of tables")
    part = add("paper", _paper, "Proposition 1 and the two-reward cases, as tables and figures.")
    part.add_argument("--results", type=Path, default=Path("results"), help="folder of tables")
    part = add("assumption", _assumption, "States of a family in which Assumption 2 fails.")
    _add_config(part)
    part.add_argument("--gamma", type=float, help="discount; the config's by default")
    part = add("horizon", _horizon, "N and N_ep from random data, as two overrides to paste.")
    _add_config(part)
    text = "required share of query states whose two labels agree (default: %(default)s)"
    part.add_argument("--agreement", type=float, default=0.85, metavar="SHARE", help=text)
    part.add_argument("--results", type=Path, default=Path("results"), help="folder of tables")


def _add_config(part: argparse.ArgumentParser) -> None:
    part.add_argument("config", type=Path, metavar="CONFIG", help="a YAML file of configs/")
    part.add_argument(
        "overrides", nargs="*", metavar="key.sub=value", help="replaces a value of the config"
    )


def _bandit(options: argparse.Namespace) -> int:
    from sad_hpc.theory.bounds import BanditBound

    bound = BanditBound(options.bound, options.gap)
    if options.delta is not None:
        exact = bound.trust_horizon(options.delta)
        print(f"N = {math.ceil(exact):,} pulls of every arm ({exact:.6g})")
    else:
        print(f"1 - delta = {bound.trustworthiness(options.pulls):.6g}")
    return 0


def _mdp(options: argparse.Namespace) -> int:
    from sad_hpc.theory.bounds import MDPBound

    bound = MDPBound(options.bound, options.kappa, options.gamma)
    horizon = options.horizon
    print(f"least N = {bound.least_horizon:,}; at N = {horizon:,}, G_1 = {bound.g_1(horizon):.6g}")
    if options.delta is not None:
        exact = bound.episodes(options.delta, horizon)
        print(f"N_ep = {math.ceil(exact):,} rollouts of every action ({exact:.6g})")
    else:
        print(f"1 - delta = {bound.trustworthiness(options.episodes, horizon):.6g}")
    return 0


def _experiment(options: argparse.Namespace) -> "Experiment[Any]":
    """Load the config with the settings of its first round, whose rollouts are random play."""
    from sad_hpc.experiment.load import load_experiment

    experiment = load_experiment(options.config, options.overrides)
    return experiment.model_copy(update={"data": experiment.data.in_round(1)})


def _config(options: argparse.Namespace) -> int:
    from sad_hpc.tasks.bandit import BanditFamily
    from sad_hpc.tasks.base import make_family
    from sad_hpc.theory.trust import trust

    experiment = _experiment(options)
    family, data = make_family(experiment.task), experiment.data
    found = trust(experiment)
    score = "" if data.score == "mean" else f", score = {data.score}"
    print(f"{family.name}: N = {data.trust_horizon}, N_ep = {data.episodes_per_action}{score}")
    if isinstance(family, BanditFamily):
        _print_theorem_1(family, found)
    else:
        _print_theorem_2(data, found)
    print(
        f"measured: {found.measured:.1%} of {found.labels:,} labels are optimal, in accepted query "
        f"states; {found.transitions:,.0f} transitions each"
    )
    return 0


def _print_theorem_1(family: "BanditFamily", found: "Trust") -> None:
    """Print quantiles of the family's gaps, and the level of Theorem 1."""
    from sad_hpc.theory.bounds import BanditBound
    from sad_hpc.theory.trust import gap_quantile, reward_bound

    for share in (0.1, 0.5, 0.9):
        problem = BanditBound(reward_bound(family), gap_quantile(family, share))
        print(
            f"gap: {share:.0%} of the tasks have {problem.gap:.3g} or less, for which "
            f"1 - delta = {1 - DELTA:.0%} needs N = {math.ceil(problem.trust_horizon(DELTA)):,}"
        )
    print(f"Theorem 1, averaged over tasks: at least {found.promised:.1%} are optimal")


def _print_theorem_2(data: "DataConfig", found: "Trust") -> None:
    from sad_hpc.theory.trust import theorem_horizon

    bound, horizon = found.bound, theorem_horizon(data)
    if bound is not None:
        print(f"kappa = {bound.kappa:.3g}, the minimum over states of training tasks "
              f"(gamma = {data.discount:g})")  # fmt: skip
    if bound is None or found.promised is None:
        print(f"Theorem 2 does not apply: {found.silence}")
        return
    print(
        f"G_1 = {bound.g_1(horizon):.3g}: 1 - delta = {1 - DELTA:.0%} needs "
        f"N_ep = {math.ceil(bound.episodes(DELTA, horizon)):,}"
    )
    print(f"Theorem 2: at least {found.promised:.1%} are optimal in any state")


def _paper(options: argparse.Namespace) -> int:
    from sad_hpc.theory.line_worlds import write_line_worlds

    print(f"tables and figures: {write_line_worlds(options.results)}")
    return 0


def _labels(options: argparse.Namespace) -> int:
    from sad_hpc.theory.labels import write_labels

    path = write_labels(_experiment(options), options.results)
    print(f"table and figure: {path.with_suffix('.csv')}, {path.name}")
    return 0


def _learners(options: argparse.Namespace) -> int:
    from sad_hpc.aggregate.formats import plain_table
    from sad_hpc.theory.learners import exact_learners
    from sad_hpc.theory.table import write_table

    experiment = _experiment(options)
    table = exact_learners(experiment)
    rows = [[name, *(f"{value:.4g}" for value in values)] for name, *values in table.to_numpy()]
    print(plain_table([title.replace("_", " ") for title in table.columns], rows), end="")
    print(f"table: {write_table(options.results, f'learners_{experiment.name}', table)}")
    return 0


def _assumption(options: argparse.Namespace) -> int:
    from sad_hpc.experiment.per_round import first_round
    from sad_hpc.theory.trust import assumption_2

    experiment = _experiment(options)
    gamma = first_round(experiment.data.discount) if options.gamma is None else options.gamma
    found = assumption_2(experiment, gamma)
    for split, parameters, state in found.misled[:20]:
        print(f"misled: {split} task {parameters}, state {state}")
    if len(found.misled) > 20:
        print(f"... and {len(found.misled) - 20:,} more")
    misled, unequal = len(found.misled), found.unequal
    print(f"{found.checked:,} states of all tasks, gamma = {gamma:g}")
    print("the random policy's best actions are")
    print(f"not all optimal in {misled:,}: long rollouts {'' if misled else 'do not '}mislead")
    print(
        f"not exactly the optimal actions in {unequal:,}: "
        f"Assumption 2 {'fails' if unequal else 'holds'}"
    )
    return 1 if found.misled else 0


def _horizon(options: argparse.Namespace) -> int:
    from sad_hpc.aggregate.formats import plain_table
    from sad_hpc.theory.horizon import tried_rules
    from sad_hpc.theory.table import write_table

    experiment = _experiment(options)
    table = tried_rules(experiment, options.agreement)
    header = ["N", "N_ep", "consensus", "with a label", "optimal label", "transitions", ""]
    rows = [
        [
            f"{rule.N:,}",
            f"{rule.N_ep:,}",
            f"{rule.consensus:.3f}",
            f"{rule.labelled:.3f}",
            f"{rule.optimal:.3f}",
            f"{rule.transitions:,.0f}",
            "chosen" if rule.chosen else "",
        ]
        for rule in table.itertuples()
    ]
    print(plain_table(header, rows), end="")
    print("the choice uses the consensus only, not the column of optimal labels")
    print(f"the trials took {table['trial_transitions'].sum():,.0f} transitions in all")
    print(f"table: {write_table(options.results, f'horizon_{experiment.name}', table)}")
    (chosen,) = table[table["chosen"]].itertuples()
    if chosen.consensus < options.agreement:
        print(f"no rule reaches a consensus of {options.agreement:g}; nearest rule:")
    print(f"data.trust_horizon={chosen.N} data.episodes_per_action={chosen.N_ep}")
    return 0
