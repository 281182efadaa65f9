"""What the operating system knows of this process: its age and its memory."""

import os
import resource
from pathlib import Path


def age_seconds():
    """Seconds since the process was started, interpreter start included (10 ms steps)."""
    started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - started_ticks / os.sysconf("SC_CLK_TCK")


def resident_peak_bytes():
    """Largest resident set so far (`ru_maxrss`, which Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
