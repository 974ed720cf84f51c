#!/usr/bin/env python3
"""What moved between two runs of ./dev bench hot.

usage: compare_benchmarks.py [--all] [--noise PERCENT] [--fail-on-worse] OLD.json NEW.json

A figure moved if its repetitions in the two runs do not overlap and its median changed by more than
the noise: PERCENT (5 by default), or the spread of either run's repetitions where that is more. Ratios of goals
come first, since they hold on a machine whose speed drifts; then everything else that was measured.
In every figure less is better. Another host, build or policy is told first.

  --all            also what did not move
  --fail-on-worse  exit status 1 if a goal's figure became worse
"""

import argparse
import json
import signal
import statistics
import sys


def read(path):
    """{"goal": name to repetitions, "measured": ..., "machine": name to text}; ends the program if the file is not one of ours."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"compare_benchmarks.py: {path}: {error}")
    if document.get("kind") != "cistern hot path" or document.get("version") != 1:
        sys.exit(f"compare_benchmarks.py: {path}: expected a JSON file of ./dev bench hot, version 1")
    goals = {}
    for row in document["goals"]:
        goals[row["figure"]] = row["without_history"]
        goals[row["figure"] + ", with the ring on"] = row["with_history"]
    machine = dict(line.removeprefix("- ").split(": ", 1) for line in document.get("machine", []) if ": " in line)
    return {"goal": {name: values for name, values in goals.items() if values}, "measured": document["figures"],
            "machine": machine}


def spread_percent(values):
    """How far the repetitions lie apart, of their median."""
    middle = statistics.median(values)
    return 100 * (max(values) - min(values)) / abs(middle) if middle else 0.0


class Change:
    def __init__(self, name, old, new, noise_percent):
        self.name = name
        self.old, self.new = statistics.median(old), statistics.median(new)
        self.percent = 100 * (self.new / self.old - 1) if self.old else (0.0 if self.new == self.old else float("inf"))
        self.noise = max(noise_percent, spread_percent(old), spread_percent(new))
        apart = max(old) < min(new) or max(new) < min(old)
        # Without repetitions there is no spread to see: the noise alone decides.
        self.moved = apart and abs(self.percent) > self.noise

    def markdown(self):
        word = "worse" if self.percent > 0 else "better"
        return (f"| {self.name} | {self.old:,.4g} | {self.new:,.4g} | {self.percent:+.1f} % | {self.noise:.1f} % | "
                f"{word if self.moved else ''} |")


def changes(old, new, noise_percent):
    found = [Change(name, old[name], new[name], noise_percent) for name in old if name in new]
    return sorted(found, key=lambda change: (not change.moved, -abs(change.percent)))


def print_differences(old, new):
    """Figures of another host, build or policy are of something else."""
    for name in ("host", "build", "policy"):
        before, now = old.get(name, "not told"), new.get(name, "not told")
        if before != now:
            print(f"Another {name}: {before} in the old run, {now} in the new one.\n")


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who reads may have seen enough
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "), description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--noise", type=float, default=5.0)
    parser.add_argument("--fail-on-worse", action="store_true")
    parser.add_argument("old")
    parser.add_argument("new")
    arguments = parser.parse_args()
    old, new = read(arguments.old), read(arguments.new)
    print_differences(old["machine"], new["machine"])
    worse = False
    for group, title in (("goal", "Figures of goals"), ("measured", "Everything measured")):
        compared = changes(old[group], new[group], arguments.noise)
        moved = [change for change in compared if change.moved]
        print(f"## {title}: {len(moved)} of {len(compared)} moved\n")
        shown = compared if arguments.all else moved
        if shown:
            print("| figure | old | new | change | noise | |\n| --- | ---: | ---: | ---: | ---: | --- |")
            print("\n".join(change.markdown() for change in shown))
            print()
        only = {"old": old[group].keys() - new[group].keys(), "new": new[group].keys() - old[group].keys()}
        for side, names in only.items():
            if names:
                print(f"{len(names)} only in the {side} run, such as {sorted(names)[0]}\n")
        worse = worse or (group == "goal" and any(change.percent > 0 for change in moved))
    return 1 if worse and arguments.fail_on_worse else 0


if __name__ == "__main__":
    sys.exit(main())
