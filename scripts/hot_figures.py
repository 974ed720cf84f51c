"""What the benchmarks of the hot path measured, by name, with a value for each repetition."""

import json
import statistics
import sys

# Keys of Google Benchmark's that are not counters of ours.
NOT_COUNTERS = {
    "real_time", "cpu_time", "iterations", "repetitions", "repetition_index", "threads", "family_index",
    "per_family_instance_index",
}


def nanoseconds(value):
    return "" if value is None else f"{value:.1f} ns" if value < 100 else f"{value:,.0f} ns"


class Figures:
    """`values`: "RUN BENCHMARK COUNTER" to the repetitions' values. RUN is a peer, metadata,
    callgrind or another name that the script gave it."""

    def __init__(self, folder):
        self.values = {}
        for path in sorted(folder.glob("*.*.json"), key=lambda path: (int(path.name.split(".")[0]), path.name)):
            text = path.read_text(encoding="utf-8")
            for bench in json.loads(text)["benchmarks"] if text else []:
                self.add(path.name.split(".")[1], bench)
        instructions = folder / "instructions"
        if instructions.exists():
            for line in instructions.read_text(encoding="utf-8").splitlines():
                work, count = line.split()
                self.values[f"callgrind {work} instructions"] = [float(count)]

    def add(self, run, bench):
        name = bench["name"].removesuffix("/iterations:1/manual_time")
        if bench.get("error_occurred"):
            print(f"{name} beside {run}: {bench['error_message']}", file=sys.stderr)
            return
        for counter, value in bench.items():
            if isinstance(value, (int, float)) and counter not in NOT_COUNTERS:
                self.values.setdefault(f"{run} {name} {counter}", []).append(value)

    def bench(self, run, name):
        return Bench(self, f"{run} {name}")

    def names(self, prefix):
        """The benchmarks whose names begin so, of any run."""
        return sorted({key.split(" ")[1] for key in self.values if key.split(" ")[1].startswith(prefix)})

    def has_run(self, run):
        return any(key.startswith(f"{run} ") for key in self.values)

    def has_counter(self, run, beginning):
        return any(key.startswith(f"{run} ") and key.split(" ")[2].startswith(beginning) for key in self.values)


class Bench:
    """One benchmark's counters. What was not measured is None, and so is what would be made of it."""

    def __init__(self, figures, name):
        self.figures, self.name = figures, name

    def values(self, counter):
        return self.figures.values.get(f"{self.name} {counter}")

    def median(self, counter):
        values = self.values(counter)
        return None if values is None else statistics.median(values)

    def ns(self, counter):
        return nanoseconds(self.median(counter))

    def combined(self, function, *counters):
        """`function` of each repetition's values."""
        columns = [self.values(counter) for counter in counters]
        return None if any(column is None for column in columns) else [function(*row) for row in zip(*columns)]

    def ratio(self, numerator, denominator):
        return self.combined(lambda a, b: a / b, numerator, denominator)

    def __bool__(self):
        return any(key.startswith(f"{self.name} ") for key in self.figures.values)
