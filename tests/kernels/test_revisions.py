"""Checksums of datasets: a change of the bytes requires a new revision."""

import hashlib

import pytest

from sad_hpc.distill import make_block
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.bandit import BernoulliBanditConfig, GaussianBanditConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.miniworld.family import MiniworldConfig
from sad_hpc.tasks.permuted_darkroom import PermutedDarkroomConfig

SIZES = {"tasks": 400, "trust_horizon": 5, "block_tasks": 100}
DATA, HISTORIES = DataConfig(**SIZES), DataConfig(**SIZES, q_learning_steps=300)
MANY = DataConfig(**SIZES, episodes_per_action=5)
"""Settings with N_ep > 1, whose labels depend on the order of rollouts, too."""


@pytest.mark.parametrize(
    ("config", "data", "revision", "checksum"),
    [
        (DarkroomConfig(), DATA, 2, "9dbfa7373ef7"),
        (DarkroomConfig(), HISTORIES, 4, "9551f40f7919"),
        (PermutedDarkroomConfig(), DATA, 2, "30882b108f02"),
        (GaussianBanditConfig(horizon=50), DATA, 0, "5b07790144cf"),
        (BernoulliBanditConfig(horizon=50), DATA, 0, "77472ba8d279"),
        (MiniworldConfig(), DATA, 0, "a73ca3bc79a1"),
        (DarkroomConfig(), MANY, 2, "b2a890d8c3aa"),
        (MiniworldConfig(), MANY, 0, "81bab8fba737"),
    ],
    ids=lambda value: getattr(value, "family", None),
)
def test_other_bytes_need_another_data_revision(
    config, data: DataConfig, revision: int, checksum: str
):
    """Whole numbers alone are checked: another processor may round other numbers differently."""
    family = make_family(config)
    arrays = make_block(family, data, "train", 1).arrays
    digest = hashlib.blake2b(digest_size=6)
    for name in sorted(arrays):
        if arrays[name].dtype.kind in "iu":
            digest.update(name.encode() + arrays[name].tobytes())
    assert (family.data_revision + data.revision, digest.hexdigest()) == (revision, checksum), (
        "raise data_revision of this family, or of these settings (DataConfig.revision), and write "
        "their sum and the new checksum here"
    )
