"""The timeouts of tests suffice on a busy machine."""

import re
from pathlib import Path

from .patience import HUNG

TESTS = Path(__file__).parent
LIMIT = re.compile(
    r"\b(?:timeout=|alarm\(|wait\(|join\(|monotonic\(\) - \w+ < |deadline = [\w.]+\(\) \+ )"
    r"(\d+(?:\.\d+)?)\b(?! \*)"
)


def test_no_time_limit_is_a_number_that_a_busy_machine_exceeds() -> None:
    """Use HUNG or SOON of tests/patience.py instead."""
    short = {
        path.name: limit
        for path in TESTS.rglob("*.py")
        for limit in map(float, LIMIT.findall(path.read_text()))
        if 0 < limit < HUNG / 4
    }
    assert short == {}
