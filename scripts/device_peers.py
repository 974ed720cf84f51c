#!/usr/bin/env python3
"""What the hot path takes beside the allocators that need a device, as a table.

usage: device_peers.py FOLDER

FOLDER holds 1.RUN.json (Google Benchmark's) of the runs below, as device_peers.sh makes them. Ours are the figures
that were taken beside PyTorch, in turn with it, or where there is none beside the driver's pool.
"""

import pathlib
import sys

from hot_figures import Figures, nanoseconds
from hot_table import by_size

# A column: its title, the run, and whose figure of that run.
COLUMNS = [
    ("cistern, `classic`", "torch", "cistern"),
    ("with the ring on", "torch", "history"),
    ("cistern, `paged`", "torch_paged", "cistern"),
    ("with the ring on", "torch_paged", "history"),
    ("PyTorch", "torch", "peer"),
    ("the driver's pool", "driver_pool", "peer"),
    ("tcmalloc", "tcmalloc", "peer"),
]
WORKS = [("two_threads", "_one", "two_threads, one"), ("two_threads", "_two", "two_threads, two"),
         ("recorded_turn", "_plain", "recorded_turn, the plain pair"), ("recorded_turn", "", "recorded_turn")]


def table(figures):
    works = [(name, "", name) for prefix in ("warm_pair/", "mixed_sizes/", "changing_steps/", "trace_replay/")
             for name in sorted(figures.names(prefix), key=by_size)]
    columns = [(title, run if figures.has_run(run) else "driver_pool", who) for title, run, who in COLUMNS
               if figures.has_counter(run, f"{who}_") or run == "torch" and who != "peer"]
    lines = ["| work | " + " | ".join(title for title, _, _ in columns) + " |",
             "| --- | " + " | ".join(["---:"] * len(columns)) + " |"]
    for name, middle, title in works + WORKS:
        values = [figures.bench(run, name).median(f"{who}{middle}_ns") for _, run, who in columns]
        if any(value is not None for value in values):
            cells = " | ".join("–" if value is None else nanoseconds(value).removesuffix(" ns") for value in values)
            lines.append(f"| {title} | {cells} |")
    return lines


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(table(Figures(pathlib.Path(sys.argv[1])))))
