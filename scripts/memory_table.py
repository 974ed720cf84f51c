#!/usr/bin/env python3
"""What each policy reserves for each trace, against the goals of `paged` and beside other allocators.

usage: memory_table.py FOLDER PEERS RESULT

FOLDER holds POLICY.replay, POLICY.perturbed and POLICY.capacity (JSON lines of the cistern command), traces (their
paths, one a line) and machine (lines of text), as bench_memory.sh makes them. PEERS is a Markdown file with tables of
other allocators' figures by trace; where it is not, they are left out. Writes RESULT, and prints it; the same figures
as JSON lie beside it, under its name with .json.
"""

import gzip
import json
import pathlib
import sys

POLICIES = ["classic", "expandable", "paged", "direct"]
RIVALS = ["PyTorch", "PyTorch expandable", "GMLake"]
MIB = 1 << 20
HANDLE = 2 * MIB
# What mapping a handle costs: a create and a map.
COSTS = json.loads((pathlib.Path(__file__).resolve().parent.parent / "bench" / "costs.json").read_text())["ns"]
HANDLE_MS = (COSTS["cuMemCreate"] + COSTS["cuMemMap"]) / 1e6
# In the peers' tables, and no peers; `direct` is a policy here.
NO_PEERS = ("live MiB", "page model", "direct")


def json_lines(path):
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    return {line["trace"].removesuffix(".gz").removesuffix(".trace"): line for line in lines}


def streams_of(path):
    """On how many streams a trace allocates."""
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as lines:
        return len({line.split()[3] for line in lines if line.startswith("a ")})


def peer_table(text, title):
    """{trace: {allocator: figure}} of the table below the heading that begins so; what is no number is left out."""
    found = {}
    names = None
    inside = False
    for line in text.splitlines():
        if line.startswith("## "):
            inside = line[3:].startswith(title)
        if not inside or not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if names is None:
            names = cells
            continue
        figures = {}
        for name, cell in zip(names[1:], cells[1:]):
            try:
                figures[name] = float(cell)
            except ValueError:
                pass
        if figures:
            found[cells[0]] = figures
    return found


class Trace:
    """One trace's figures under all policies, and its goals."""

    def __init__(self, name, streams, runs, perturbed, capacities, peer_ratios, peer_capacities):
        self.name = name
        self.streams = streams
        self.runs = runs
        self.perturbed = perturbed
        self.capacities = capacities
        self.peer_ratios = peer_ratios
        self.peer_capacities = peer_capacities
        self.live = runs["paged"]["peak_live_bytes"]

    def ratio(self, policy="paged"):
        return self.runs[policy]["peak_reserved_over_live"]

    def capacity(self, policy="paged"):
        return self.capacities.get(policy, {}).get("min_capacity_over_live")

    def of_perturbed(self):
        run = self.perturbed["paged"]
        return 1000 * run["repeat_driver_calls"] / run["ops"], run["peak_reserved_over_live"]

    def is_adversary(self):
        return "sawtooth" in self.name

    def goal(self):
        """The largest ratio that is good enough: reserved over live; None: any below the peers."""
        if self.is_adversary():
            return None
        if self.streams > 1:
            return 1.05
        return 1.02 + (8 * MIB / self.live if self.live < 1 << 30 else 0)

    def goal_ms(self):
        return 2 * HANDLE_MS * -(-self.live // HANDLE)

    def shortfalls(self):
        """What is missed, in words."""
        return (self._memory_shortfalls(self.ratio(), self.peer_ratios, self.goal(), "ratio") +
                self._memory_shortfalls(self.capacity(), self.peer_capacities, self.capacity_goal(), "least capacity") +
                self._call_shortfalls())

    def capacity_goal(self):
        return None if self.is_adversary() else 1.02 + 8 * MIB / self.live

    def _memory_shortfalls(self, figure, peers, goal, what):
        if figure is None:
            return [f"no {what}"]
        missed = []
        if goal is None:
            best = min(peers.items(), key=lambda peer: peer[1], default=None)
            if best is not None and figure >= best[1]:
                missed.append(f"{what} {figure:.4f}, {best[0]} {best[1]:.3f}")
        elif figure > goal + 5e-5:
            missed.append(f"{what} {figure:.4f} > {goal:.4f}")
        slack = max(4 * MIB / self.live, 0.005)
        for rival in RIVALS:
            # Published to three places.
            if rival in peers and figure > peers[rival] + 5e-4 + slack:
                missed.append(f"{what} {figure:.4f}, {rival} {peers[rival]:.3f}")
        return missed

    def _call_shortfalls(self):
        run = self.runs["paged"]
        calls, ratio = self.of_perturbed()
        missed = []
        if run["repeat_driver_calls"]:
            missed.append(f"{run['repeat_driver_calls']} calls in a repeated pass")
        if calls > 1:
            missed.append(f"perturbed {calls:.2f} calls in 1,000 operations")
        if not self.is_adversary() and ratio > max(1.03, self.goal()) + 5e-5:
            missed.append(f"perturbed ratio {ratio:.4f}")
        if run["host_synchronizations"]:
            missed.append(f"{run['host_synchronizations']} host synchronisations")
        if run["modelled_driver_ms"] > self.goal_ms():
            missed.append(f"driver {run['modelled_driver_ms'] / self.goal_ms():.2f} times the goal")
        slower = run["ns_per_op"] / max(self.runs["classic"]["ns_per_op"], 1e-9)
        if slower > 1.3:
            missed.append(f"host time {slower:.1f} times classic's")
        return missed


def cell(value, places=4):
    return "–" if value is None else f"{value:.{places}f}"


def goals_table(traces):
    lines = ["| trace | live MiB | streams | ratio | goal | least capacity | calls again | perturbed, in 1,000 | ratio then | "
             "host syncs | driver ms | goal | ns an operation | classic's | |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"]
    for trace in traces:
        run = trace.runs["paged"]
        calls, ratio = trace.of_perturbed()
        goal = "< peers" if trace.goal() is None else f"{trace.goal():.4f}"
        cells = [trace.name, f"{trace.live / MIB:.0f}", str(trace.streams), cell(trace.ratio()), goal,
                 cell(trace.capacity()), str(run["repeat_driver_calls"]), cell(calls, 2), cell(ratio),
                 str(run["host_synchronizations"]), cell(run["modelled_driver_ms"], 1), cell(trace.goal_ms(), 1),
                 cell(run["ns_per_op"], 0), cell(trace.runs["classic"]["ns_per_op"], 0),
                 "; ".join(trace.shortfalls()) or "✓"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def beside_peers(traces, figure, peers):
    names = sorted({name for trace in traces for name in peers(trace)})
    lines = ["| trace | " + " | ".join(POLICIES + names) + " |", "| --- |" + " ---: |" * len(POLICIES + names)]
    for trace in traces:
        cells = [trace.name] + [cell(figure(trace, policy)) for policy in POLICIES]
        cells += [cell(peers(trace).get(name), 3) for name in names]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def policies_table(traces):
    """Calls and times of all policies: in the first pass, again, perturbed."""
    lines = ["| trace | policy | driver calls again | perturbed, in 1,000 | host syncs | driver ms |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]
    for trace in traces:
        for policy in POLICIES:
            run, noisy = trace.runs[policy], trace.perturbed[policy]
            lines.append(f"| {trace.name} | {policy} | {run['repeat_driver_calls']} | "
                         f"{1000 * noisy['repeat_driver_calls'] / noisy['ops']:.2f} | {run['host_synchronizations']} | "
                         f"{run['modelled_driver_ms']:.1f} |")
    return lines


def as_json(trace):
    policies = {}
    for policy in POLICIES:
        run, noisy = trace.runs[policy], trace.perturbed[policy]
        policies[policy] = {
            "peak_reserved_over_live": trace.ratio(policy), "min_capacity_over_live": trace.capacity(policy),
            "repeat_driver_calls": run["repeat_driver_calls"],
            "perturbed_calls_in_1000": 1000 * noisy["repeat_driver_calls"] / noisy["ops"],
            "perturbed_peak_reserved_over_live": noisy["peak_reserved_over_live"],
            "host_synchronizations": run["host_synchronizations"], "modelled_driver_ms": run["modelled_driver_ms"],
            "ns_per_op": run["ns_per_op"]}
    return {"peak_live_bytes": trace.live, "streams": trace.streams, "policies": policies, "shortfalls": trace.shortfalls(),
            "peers": {"peak_reserved_over_live": trace.peer_ratios, "min_capacity_over_live": trace.peer_capacities}}


def read_traces(folder, peers):
    text = peers.read_text(encoding="utf-8") if peers.exists() else ""
    ratios = peer_table(text, "Peak reserved over peak live")
    capacities = peer_table(text, "Least capacity over peak live")
    kinds = {kind: {policy: json_lines(folder / f"{policy}.{kind}") for policy in POLICIES}
             for kind in ("replay", "perturbed", "capacity")}
    traces = []
    for path in (folder / "traces").read_text().splitlines():
        name = pathlib.Path(path).name.removesuffix(".gz").removesuffix(".trace")
        of_trace = {kind: {policy: lines[name] for policy, lines in kinds[kind].items() if name in lines} for kind in kinds}
        without = {key: {peer: figure for peer, figure in of.get(name, {}).items() if peer not in NO_PEERS}
                   for key, of in (("ratios", ratios), ("capacities", capacities))}
        traces.append(Trace(name, streams_of(path), of_trace["replay"], of_trace["perturbed"], of_trace["capacity"],
                            without["ratios"], without["capacities"]))
    return traces


def main(folder, peers, result):
    folder = pathlib.Path(folder)
    traces = read_traces(folder, pathlib.Path(peers))
    large = [trace.ratio() for trace in traces if trace.streams == 1 and trace.live > 1 << 30 and not trace.is_adversary()]
    mean = sum(large) / len(large) if large else 0
    met = sum(not trace.shortfalls() for trace in traces)
    lines = ["# Memory: policies, traces and other allocators", "",
             "Written by `./dev bench memory`; memory figures and calls are exact and repeatable, driver times are modelled, "
             "host times are of this machine, and of no worth where it was busy.", "",
             (folder / "machine").read_text().rstrip(), "",
             "## The goals of `paged`", "",
             f"{met} of {len(traces)} traces meet all of them. On one stream and over 1 GiB the mean ratio is {mean:.4f} "
             f"(goal: at most 1.01{', met' if mean <= 1.01 else ''}).", "",
             *goals_table(traces), "", "## Peak reserved over peak live", "",
             *beside_peers(traces, Trace.ratio, lambda trace: trace.peer_ratios), "",
             "## Least capacity over peak live", "",
             *beside_peers(traces, Trace.capacity, lambda trace: trace.peer_capacities), "",
             "## Calls and modelled driver time", "", *policies_table(traces)]
    text = "\n".join(lines) + "\n"
    pathlib.Path(result).write_text(text, encoding="utf-8")
    figures = {trace.name: as_json(trace) for trace in traces}
    pathlib.Path(result).with_suffix(".json").write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
