"""Throughput of a collection, and the share of each phase in the time of its ranks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PHASES = ("kernels", "rendering", "compression", "I/O")


@dataclass
class Throughput:
    """Counts of one rank, or their sum over several ranks."""

    transitions: int = 0
    bytes: int = 0
    """Bytes of written shards."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase, summed over the ranks."""
    peak_memory: int = 0
    """Largest peak memory of a rank in bytes, without its parent's, which getrusage includes."""
    elapsed: float = 0.0
    """Seconds, summed over the ranks; they include the manifest and the wait for other ranks."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time in this context to one of PHASES."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    @classmethod
    def of_ranks(cls, ranks: list["Throughput"]) -> "Throughput":
        """Return the sum of all ranks' counts, and their largest peak memory."""
        return cls(
            sum(rank.transitions for rank in ranks),
            sum(rank.bytes for rank in ranks),
            {name: sum(rank.seconds.get(name, 0.0) for rank in ranks) for name in PHASES},
            max(rank.peak_memory for rank in ranks),
            sum(rank.elapsed for rank in ranks),
        )

    def summary(self, ranks: int) -> dict[str, Any]:
        """Return rates per second of all ranks together, and the share of each phase."""
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
    """Return a process's peak memory in bytes since its start or the last reset."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    line = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM 0")
    return int(line.split()[1]) * 1024


def sentence(summary: dict[str, Any]) -> str:
    """Format a summary, as in `5.1 M transitions/s, 82 MB/s, 210 MB a rank; kernels 40 %`."""
    rates = (
        f"{summary['transitions_per_second'] / 1e6:.3g} M transitions/s, "
        f"{summary['bytes_per_second'] / 1e6:.3g} MB/s, "
        f"{summary['peak_memory_of_a_rank'] / 1e6:.3g} MB a rank"
    )
    return f"{rates}; " + ", ".join(f"{n} {share:.0%}" for n, share in summary["shares"].items())
