#!/usr/bin/env python3
"""The table of goals of the hot path from what its benchmarks wrote.

usage: hot_table.py FOLDER RESULT

FOLDER holds N.PEER.json (Google Benchmark's, of repetition N beside PEER), N.metadata.json, instructions
("WORK COUNT" a line) and machine (lines of text), as bench_hot.sh makes them. Writes RESULT.md and
RESULT.json, and prints the former. docs/benchmarks.md has the rows' meaning.
"""

import json
import pathlib
import sys

from hot_figures import Figures, nanoseconds
from hot_goals import goal_rows

PEERS = ["tcmalloc", "glibc", "mimalloc", "jemalloc", "cub"]


def by_size(name):
    """Sizes by number, other names by letter."""
    last = name.split("/")[-1]
    return (int(last), "") if last.isdigit() else (0, last)


def peers_table(figures):
    """Nanoseconds of each allocator; ours as they were beside tcmalloc."""
    present = [peer for peer in PEERS if figures.has_run(peer)]
    lines = ["| work | cistern | with the ring on | " + " | ".join(present) + " |",
             "| --- | " + " | ".join(["---:"] * (2 + len(present))) + " |"]
    works = [(name, "") for prefix in ("warm_pair/", "mixed_sizes/", "changing_steps/", "trace_replay/")
             for name in sorted(figures.names(prefix), key=by_size)]
    for name, middle in works + [("two_threads", "_one"), ("two_threads", "_two")]:
        ours = figures.bench("tcmalloc", name)
        values = [ours.median(f"{who}{middle}_ns") for who in ("cistern", "history")]
        values += [figures.bench(peer, name).median(f"peer{middle}_ns") for peer in present]
        if any(value is not None for value in values):
            cells = " | ".join("–" if value is None else nanoseconds(value).removesuffix(" ns") for value in values)
            lines.append(f"| {name}{middle.replace('_', ', ')} | {cells} |")
    return lines


def markdown(machine, rows, figures):
    verdicts = [row.met(values) for row in rows for values in (row.off, row.on)]
    traces = len(figures.names("trace_replay/"))
    return [
        "# The hot path", "", "Written by `./dev bench hot`; [how to read it](../../docs/benchmarks.md).", "",
        *machine, "", "## Goals", "",
        "| figure | goal | without history | | with the ring on | | repetitions without | PyTorch 2.4, elsewhere | |",
        "| --- | --- | ---: | --- | ---: | --- | --- | --- | --- |",
        *(row.markdown() for row in rows), "",
        f"{verdicts.count(True)} of {len(verdicts) - verdicts.count(None)} are met. {traces} traces were replayed"
        + ("." if traces else ": none were found."), "",
        "## Beside the peers", "",
        "Nanoseconds: of a pair, of a free and an allocation, of an operation of a trace.", "",
        *peers_table(figures), "",
    ]


def main(folder, result):
    figures = Figures(folder)
    rows = list(goal_rows(figures))
    machine = (folder / "machine").read_text(encoding="utf-8").splitlines()
    text = "\n".join(markdown(machine, rows, figures))
    document = {"kind": "cistern hot path", "version": 1, "machine": machine, "goals": [row.json() for row in rows],
                "figures": dict(sorted(figures.values.items()))}
    pathlib.Path(f"{result}.md").write_text(text, encoding="utf-8")
    pathlib.Path(f"{result}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n",
                                              encoding="utf-8")
    print(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
