"""What is left of memory, from files as the kernel writes them."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from onnxfuse.headroom import available

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine of 8 GiB that are free, without any cgroup."""
    write(tmp_path / "proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")
    write(tmp_path / "proc/self/status", "VmSize: 1048576 kB\nVmData: 524288 kB\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def left(machine: Path) -> int | None:
    return available(machine / "proc", machine / "cgroup")


def test_the_machine_itself(machine: Path) -> None:
    assert left(machine) == 8 * GIB


def test_version_2_of_cgroups_counts_every_group_above(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "0::/pod/box\n")
    box, pod = machine / "cgroup/pod/box", machine / "cgroup/pod"
    write(box / "memory.max", "max\n")
    write(pod / "memory.max", f"{3 * GIB}\n")
    write(pod / "memory.current", f"{2 * GIB}\n")
    write(pod / "memory.stat", f"anon 5\ninactive_file {GIB // 2}\n")  # pages of files can be dropped
    assert left(machine) == GIB + GIB // 2
    write(box / "memory.max", f"{GIB}\n")
    write(box / "memory.current", f"{GIB // 4}\n")
    assert left(machine) == GIB - GIB // 4


def test_version_1_of_cgroups(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "5:cpu:/box\n4:memory:/box\n0::/\n")
    box = machine / "cgroup/memory/box"
    write(box / "memory.limit_in_bytes", f"{2 * GIB}\n")
    write(box / "memory.usage_in_bytes", f"{GIB}\n")
    assert left(machine) == GIB
    write(box / "memory.limit_in_bytes", "9223372036854771712\n")  # how it writes that there is none
    assert left(machine) == 8 * GIB


def test_a_group_seen_from_inside_its_container(machine: Path) -> None:
    """The path is the host's, and the container's own group is mounted as the root."""
    write(machine / "proc/self/cgroup", "4:memory:/docker/0123\n")
    write(machine / "cgroup/memory/memory.limit_in_bytes", f"{2 * GIB}\n")
    write(machine / "cgroup/memory/memory.usage_in_bytes", f"{3 * GIB}\n")
    assert left(machine) == 0  # more in use than the limit: nothing is left


def test_limits_on_the_process(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_AS: 3 * GIB, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], limits[kind]))
    assert left(machine) == 2 * GIB
    limits[resource.RLIMIT_DATA] = GIB
    assert left(machine) == GIB // 2


def test_nothing_says_anything(tmp_path: Path) -> None:
    assert left(tmp_path) is None
