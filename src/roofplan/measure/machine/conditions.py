"""Under which conditions a machine was measured: without them no two figures compare."""

from __future__ import annotations

import csv
import os
import platform
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
GPU_FIELDS = {
    "name": "device",
    "driver_version": "driver",
    "clocks.sm": "clock of its units",
    "clocks.mem": "clock of its memory",
    "power.draw": "power",
    "power.limit": "power limit",
    "temperature.gpu": "temperature",
    "clocks_throttle_reasons.active": "throttled by",
}
"""Fields of ``nvidia-smi --query-gpu`` -> their names here."""

FLOP_PER_CYCLE = {"avx512f": (32, 64), "avx2": (32, 32), "asimd": (8, 32)}
"""Widest vectors of a processor -> fp32 operations a cycle of a core: with the fewest and the most units for fused multiply-adds that such
cores have (agner.org/optimize/microarchitecture.pdf: one or two units of 512 bits, two of 256; Arm's cores one to four of 128) [FLOP]."""

IDLE = 1
"""Bit of NVIDIA's throttle reasons that says that nothing runs: no throttling (nvmlClocksThrottleReasonGpuIdle)."""


def _said(words: list[str]) -> str:
    """Return what a command prints, nothing where it is not there or fails."""
    if shutil.which(words[0]) is None:
        return ""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=10, check=False).stdout  # noqa: S603 - fixed words
    except (OSError, subprocess.SubprocessError):
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def processor() -> dict[str, str]:
    """Return what the system says about its processor: name, features, and its clock where it states one."""
    info = _text(Path("/proc/cpuinfo"))
    rows = dict(re.findall(r"^([^\t:\n]+)\s*:\s*(.*)$", info, re.MULTILINE))
    name = rows.get("model name") or _said(["sysctl", "-n", "machdep.cpu.brand_string"]).strip()
    features = (
        rows.get("flags") or rows.get("Features") or ("asimd" if platform.machine() in {"arm64", "aarch64"} else "")
    )
    out = {"processor": name or platform.processor() or platform.machine()}
    known = [one for one in FLOP_PER_CYCLE if one in features.split()]
    if known:
        out["widest vectors"] = known[0]
    highest = _text(CPUS / "cpu0/cpufreq/cpuinfo_max_freq")
    if highest.isdigit():
        out["clock as stated"] = f"{int(highest) / 1e3:.0f} MHz"
    elif rows.get("cpu MHz") and not (CPUS / "cpu0/cpufreq").exists():  # where clocks change, this is the moment's
        out["clock as stated"] = f"{float(rows['cpu MHz']):.0f} MHz"
    governor = _text(CPUS / "cpu0/cpufreq/scaling_governor")
    return out | ({"governor": governor} if governor else {})


def cache() -> int | None:
    """Return the last caches of the processors that this process may use, together; None where the system does not say [B]."""
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}
    found: dict[tuple[str, str], int] = {}
    for one in allowed():
        levels = {}
        for place in CPUS.glob(f"cpu{one}/cache/index*"):
            size = _text(place / "size")
            if size[:-1].isdigit() and size[-1] in scale:
                levels[_text(place / "level")] = (_text(place / "shared_cpu_list"), int(size[:-1]) * scale[size[-1]])
        if levels:
            last = max(levels)
            found[last, levels[last][0] or str(one)] = levels[last][1]
    if found:
        return sum(found.values())
    names = ("hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize")
    said = (_said(["sysctl", "-n", name]).strip() for name in names)
    return max((int(one) for one in said if one.isdigit() and int(one)), default=None)


def memory() -> int | None:
    """Return the memory of the host, None where the system does not say [B]."""
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        said = _said(["wmic", "ComputerSystem", "get", "TotalPhysicalMemory"])
        found = re.search(r"\d{6,}", said)
        return int(found[0]) if found else None


def allowed() -> list[int]:
    """Return the numbers of the processors that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def processors() -> int:
    """Return the processors that this process may use [1]."""
    return len(allowed())


def cores() -> int:
    """Return the cores behind them, of which some systems show several processors each [1]."""
    said = {_text(CPUS / f"cpu{one}/topology/thread_siblings_list") or str(one) for one in allowed()}
    return len(said)


def accelerator(uuid: str) -> dict[str, str]:
    """Return what ``nvidia-smi`` says of an accelerator, nothing where there is none.

    Parameters
    ----------
    uuid : its UUID, since numbers differ between libraries.

    Returns
    -------
    Name -> text with unit.
    """
    words = ["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader", f"--id={uuid}"]
    row = next(csv.reader(_said(words).splitlines(), skipinitialspace=True), [])
    if len(row) != len(GPU_FIELDS):
        return {}
    found = dict(zip(GPU_FIELDS.values(), row, strict=True))
    mask = found.pop("throttled by")
    reasons = int(mask, 16) & ~IDLE if mask.startswith("0x") else 0
    return found | ({"throttled by": f"{reasons:#x}"} if reasons else {})


def conditions(threads: int) -> dict[str, str]:
    """Return the conditions of a measurement, each as text with its unit.

    Parameters
    ----------
    threads : threads at work [1].

    Returns
    -------
    Name -> text.
    """
    load = f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else ""
    out = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **processor(),
        "processors": str(processors()),
        "cores": str(cores()),
        "threads": str(threads),
        "load of the last minute": load,
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
    }
    return {name: text for name, text in out.items() if text}
