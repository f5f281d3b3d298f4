"""Two network namespaces as machines, joined by a router that can be cut."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

INTERFACE = "eth0"
"""Network interface of each machine, the only one beside its loopback."""

LIFETIME = "1200"
"""Seconds after which a namespace that was not ended is ended by its holder."""


class Network:
    """Machines 0 and 1, and between them a router in a third namespace, which may lose all.

    Nothing of this machine's own network takes part: each namespace lives as long as the process
    that sleeps in it, and takes its interfaces along.
    """

    def __init__(self) -> None:
        self._router, *self._machines = [_namespace() for _ in range(3)]

    @staticmethod
    def address(machine: int) -> str:
        """Return a machine's address."""
        return f"10.7.{machine}.2"

    def file(self, machine: int) -> str:
        """Return the path of a machine's namespace."""
        return _file(self._machines[machine])

    def inside(self, machine: int) -> list[str]:
        """Put before a command, has it run on a machine."""
        return _inside(self._machines[machine])

    def connect(self) -> None:
        """Lays the cables."""
        for number, machine in enumerate(self._machines):
            port, gate = f"port{number}", f"10.7.{number}.1"
            cable = ["ip", "link", "add", port, "type", "veth", "peer", "name", INTERFACE]
            self._route(*cable, "netns", str(machine.pid))
            self._route("ip", "address", "add", f"{gate}/24", "dev", port)
            self._route("ip", "link", "set", port, "up")
            for command in (
                "link set lo up",
                f"address add {self.address(number)}/24 dev {INTERFACE}",
                f"link set {INTERFACE} up",
                f"route add default via {gate}",
            ):
                _run([*self.inside(number), "ip", *command.split()])
        self._route("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def set(self, name: str, value: int) -> None:
        """A kernel setting of both machines, such as `ipv4/tcp_retries2`."""
        for machine in self._machines:
            _run([*_inside(machine), "sh", "-c", f"echo {value} > /proc/sys/net/{name}"])

    def cut(self) -> None:
        """From now on the router loses every packet, and says nothing to anybody."""
        for machine in (0, 1):
            self._route("ip", "route", "replace", "blackhole", f"{self.address(machine)}/32")

    def heal(self) -> None:
        """Ends what `cut` began, if it has."""
        self._route("ip", "route", "flush", "type", "blackhole")

    def end(self) -> None:
        """Both machines and the router are gone when this returns."""
        for process in (self._router, *self._machines):
            process.kill()
            process.wait()

    def _route(self, *command: str) -> None:
        _run([*_inside(self._router), *command])


@contextmanager
def joined() -> Iterator[Network]:
    """Two machines; skips the test where they cannot be made."""
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"network namespaces need {', '.join(missing) or 'root'}")
    network = Network()
    try:
        try:
            network.connect()
        except subprocess.CalledProcessError as error:
            reason = error.stderr.decode().strip()
            pytest.skip(f"this kernel joins no network namespaces ({reason})")
        yield network
    finally:
        network.end()


def _namespace() -> "subprocess.Popen[bytes]":
    """A process in a network namespace of its own."""
    here = Path("/proc/self/ns/net").readlink()
    process = subprocess.Popen(["unshare", "--net", "sleep", LIFETIME])
    while process.poll() is None and Path(f"/proc/{process.pid}/ns/net").readlink() == here:
        time.sleep(0.01)
    return process


def _file(process: "subprocess.Popen[bytes]") -> str:
    return f"/proc/{process.pid}/ns/net"


def _inside(process: "subprocess.Popen[bytes]") -> list[str]:
    return ["nsenter", f"--net={_file(process)}"]


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
