"""The label rule of the tests of tables and poses."""

from typing import Any

from sad_hpc.distill.labels import LabelRule


def make_rule(**changes: Any) -> LabelRule:
    """Return a rule with one rollout per action that stops at a reward, and with `changes`."""
    values: dict[str, Any] = dict(
        episodes_per_action=1,
        discount=0.9,
        stop_at_reward=True,
        return_threshold=1e-6,
        random_ties=False,
    )
    return LabelRule(**(values | changes))
