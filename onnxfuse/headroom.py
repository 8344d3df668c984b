"""How much memory this process may still take: from the machine, its cgroups and the limits on the process.

Control files as in the Linux kernel's documentation (cgroup-v2: memory.max, memory.current, memory.stat; cgroup-v1:
memory.limit_in_bytes, memory.usage_in_bytes), limits as in getrlimit(2).
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 62  # cgroup-v1 writes its "no limit" as a number near 2^63


def available(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Return the bytes that the process may still take; None where nothing limits it or nothing says so."""
    return min((max(left, 0) for left in _limits(proc, cgroups)), default=None)


def _limits(proc: Path, cgroups: Path) -> Iterator[int]:
    machine = _fields(proc / "meminfo")
    if "MemAvailable:" in machine:
        yield machine["MemAvailable:"] * 1024
    status = _fields(proc / "self/status")
    for kind, field in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY and field in status:
            yield limit - status[field] * 1024
    for line in _lines(proc / "self/cgroup"):
        _, controllers, path = line.split(":", 2)
        version2 = not controllers
        if not version2 and "memory" not in controllers.split(","):
            continue
        root = cgroups if version2 else cgroups / "memory"
        place = root / path.strip("/")
        for folder in (place, *place.parents):
            yield from _limit_of_group(folder, version2)
            if folder == root:
                break


def _limit_of_group(folder: Path, version2: bool) -> Iterator[int]:
    """The bytes that a cgroup leaves. The kernel drops clean pages of files before it kills: they count as free."""
    limit, used, cached = (
        ("memory.max", "memory.current", "inactive_file")
        if version2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    with suppress(ValueError, IndexError):  # "max", or no such file
        most, now = int(_lines(folder / limit)[0]), int(_lines(folder / used)[0])
        if most < _NO_LIMIT:
            yield most - now + _fields(folder / "memory.stat").get(cached, 0)


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text().splitlines()
    return []


def _fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    words = (line.split() for line in _lines(path))
    return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdigit()}
