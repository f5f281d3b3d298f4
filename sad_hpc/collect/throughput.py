"""What a collection does in a second, and on what its ranks spend their time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PHASES = ("kernels", "rendering", "compression", "I/O")


@dataclass
class Throughput:
    """Counts of one rank, or of several together."""

    transitions: int = 0
    bytes: int = 0
    """Of the shards that were written."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase, summed over the ranks."""
    peak_memory: int = 0
    """Bytes, of the largest rank since its start; getrusage counts what its parent had."""
    elapsed: float = 0.0
    """Summed over the ranks; what is in no phase is the manifest, and waiting for other ranks."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time in this block counts as spent on one of PHASES."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    @classmethod
    def of_ranks(cls, ranks: list["Throughput"]) -> "Throughput":
        """The sum of all ranks' counts."""
        return cls(
            sum(rank.transitions for rank in ranks),
            sum(rank.bytes for rank in ranks),
            {name: sum(rank.seconds.get(name, 0.0) for rank in ranks) for name in PHASES},
            max(rank.peak_memory for rank in ranks),
            sum(rank.elapsed for rank in ranks),
        )

    def summary(self, ranks: int) -> dict[str, Any]:
        """Rates per second of all ranks together, and the share of each phase in their time."""
        elapsed = max(self.elapsed, 1e-9)
        shares = {name: self.seconds.get(name, 0.0) / elapsed for name in PHASES}
        shares["other"] = max(0.0, 1 - sum(shares.values()))
        return {
            "ranks": ranks,
            "seconds": elapsed / ranks,
            "transitions_per_second": self.transitions * ranks / elapsed,
            "bytes_per_second": self.bytes * ranks / elapsed,
            "peak_memory_of_a_rank": self.peak_memory,
            "shares": {name: share for name, share in shares.items() if share},
        }


def peak_memory(process: int | str = "self") -> int:
    """The most memory, in bytes, that a process has had since its start, or since it was reset."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    line = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM 0")
    return int(line.split()[1]) * 1024


def sentence(summary: dict[str, Any]) -> str:
    """A summary in words, such as `5.1 M transitions/s, 82 MB/s, 210 MB a rank; kernels 40 %`."""
    rates = (
        f"{summary['transitions_per_second'] / 1e6:.3g} M transitions/s, "
        f"{summary['bytes_per_second'] / 1e6:.3g} MB/s, "
        f"{summary['peak_memory_of_a_rank'] / 1e6:.3g} MB a rank"
    )
    return f"{rates}; " + ", ".join(f"{n} {share:.0%}" for n, share in summary["shares"].items())
