"""Errors for a lost connection to another rank."""

import pytest

from sad_hpc.errors import UserError
from sad_hpc.parallel.connections import lost_ranks_named

GLOO = (
    "[/__w/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [10.7.1.2]:19686: "
    "Connection timed out. This is typically caused by a remote worker hanging or bugs in the "
    "application. Check the logs of the remote worker before reporting an error."
)
OLDER_GLOO = (
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:9"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GLOO, "(Read error [10.7.1.2]:19686: Connection timed out)"),
        (OLDER_GLOO, "(Connection closed by peer [::1]:9)"),
    ],
)
def test_gloos_words_become_one_line(text: str, reason: str) -> None:
    with pytest.raises(UserError) as caught, lost_ranks_named():
        raise RuntimeError(text)
    assert str(caught.value).startswith(f"lost another rank {reason}: ")


def test_errors_of_another_kind_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="a bug"), lost_ranks_named():
        raise RuntimeError("a bug")
