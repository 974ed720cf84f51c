#!/usr/bin/env python3
"""The script behind ./dev bench memory, on figures made up: what it judges, reads of peers and leaves out."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True

import memory_table  # noqa: E402

GIB = 1 << 30
PEERS = """# Others
## Peak reserved over peak live, 80 GiB device
| trace | live MiB | PyTorch | GMLake | RMM arena | page model |
| --- | --- | --- | --- | --- | --- |
| made | 2048 | 1.5 | 1.02 | all | 1.00 |
## Device allocations
| trace | PyTorch |
| --- | --- |
| made | 7 |
"""


scratch = tempfile.TemporaryDirectory()
unittest.addModuleCleanup(scratch.cleanup)


class Folder:
    """A run's folder, and what memory_table.py makes of it."""

    def __init__(self, name="made", live=2 * GIB, streams=1, peers=PEERS, capacity=1.01, **paged):
        self.name = name
        self.path = pathlib.Path(tempfile.mkdtemp(dir=scratch.name))
        trace = self.path / f"{name}.trace"
        trace.write_text("".join(f"a {i} 512 {i}\n" for i in range(streams)))
        (self.path / "traces").write_text(f"{trace}\n")
        (self.path / "machine").write_text("- host: made up\n")
        (self.path / "peers.md").write_text(peers)
        for policy in memory_table.POLICIES:
            run = {"trace": f"{name}.trace", "ops": 1000, "peak_live_bytes": live, "peak_reserved_over_live": 1.01,
                   "repeat_driver_calls": 0, "host_synchronizations": 0, "modelled_driver_ms": 1.0, "ns_per_op": 100.0}
            noisy = dict(run)
            if policy == "paged":
                noisy["repeat_driver_calls"] = paged.pop("perturbed_calls", 0)
                run.update(paged)
            (self.path / f"{policy}.replay").write_text(json.dumps(run) + "\n")
            (self.path / f"{policy}.perturbed").write_text(json.dumps(noisy) + "\n")
            least = {"trace": f"{name}.trace", "min_capacity_over_live": capacity}
            (self.path / f"{policy}.capacity").write_text(json.dumps(least) + "\n")

    def verdict(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            memory_table.main(self.path, self.path / "peers.md", self.path / "result.md")
        text = out.getvalue()
        assert text == (self.path / "result.md").read_text()
        self.figures = json.loads((self.path / "result.json").read_text())[self.name]
        row = next(line for line in text.splitlines() if line.startswith(f"| {self.name} |"))
        return row.strip("|").split("|")[-1].strip(), text


class MemoryTable(unittest.TestCase):
    def verdict(self, **figures):
        return Folder(**figures).verdict()[0]

    def test_what_meets_all_goals_has_a_tick(self):
        self.assertEqual(self.verdict(), "✓")

    def test_each_goal_is_judged(self):
        self.assertIn("ratio 1.0300 > 1.0200", self.verdict(peak_reserved_over_live=1.03))
        self.assertIn("least capacity 1.0400", self.verdict(capacity=1.04))
        self.assertIn("3 calls in a repeated pass", self.verdict(repeat_driver_calls=3))
        self.assertIn("perturbed 2.00 calls", self.verdict(perturbed_calls=2))
        self.assertIn("1 host synchronisations", self.verdict(host_synchronizations=1))
        self.assertIn("driver 2.00 times", self.verdict(modelled_driver_ms=2 * 2 * memory_table.HANDLE_MS * 1024))
        self.assertIn("host time 2.0 times", self.verdict(ns_per_op=200.0))

    def test_goals_depend_on_streams_and_size(self):
        no_peers = {"peers": ""}
        self.assertEqual(self.verdict(peak_reserved_over_live=1.045, streams=2, **no_peers), "✓")
        self.assertEqual(self.verdict(peak_reserved_over_live=1.035, live=GIB // 2, **no_peers), "✓")
        self.assertIn("ratio", self.verdict(peak_reserved_over_live=1.037, live=GIB // 2, **no_peers))

    def test_a_rival_that_is_better_is_named(self):
        peers = PEERS.replace("1.02 |", "1.001 |")
        self.assertIn("ratio 1.0100, GMLake 1.001", self.verdict(peers=peers))

    def test_where_no_allocator_can_be_tight_the_best_peer_is_the_goal(self):
        peers = PEERS.replace("made", "synth-sawtooth")
        folder = {"name": "synth-sawtooth", "peers": peers, "perturbed_calls": 0}
        text = Folder(peak_reserved_over_live=1.015, **folder).verdict()[1]
        self.assertIn("1 of 1 traces meet all", text)
        text = Folder(peak_reserved_over_live=1.2, **folder).verdict()[1]
        self.assertIn("ratio 1.2000, GMLake 1.020", text)

    def test_the_same_figures_lie_beside_it_as_json(self):
        folder = Folder(peak_reserved_over_live=1.03)
        verdict = folder.verdict()[0]
        self.assertEqual("; ".join(folder.figures["shortfalls"]), verdict)
        self.assertEqual(folder.figures["policies"]["paged"]["peak_reserved_over_live"], 1.03)
        self.assertIn("GMLake", folder.figures["peers"]["peak_reserved_over_live"])

    def test_without_published_figures_they_are_left_out(self):
        text = Folder(peers="").verdict()[1]
        self.assertNotIn("GMLake", text)


if __name__ == "__main__":
    unittest.main()
