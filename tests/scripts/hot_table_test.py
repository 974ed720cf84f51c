#!/usr/bin/env python3
"""The scripts behind ./dev bench hot, on figures made up: what they judge, leave out and compare."""

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

import compare_benchmarks  # noqa: E402
import device_peers  # noqa: E402
import hot_figures  # noqa: E402
import hot_table  # noqa: E402


def bench(name, **counters):
    return {"name": f"{name}/iterations:1/manual_time", "real_time": 1.0, "iterations": 1, **counters}


def pair(ours, peer):
    return bench("warm_pair/4096", cistern_ns=ours, history_ns=2 * ours, process_ns=ours, process_history_ns=ours,
                 peer_ns=peer)


scratch = tempfile.TemporaryDirectory()
unittest.addModuleCleanup(scratch.cleanup)


class Folder:
    """A run's folder of results, and what hot_table.py makes of it."""

    def __init__(self, *repetitions, run="tcmalloc", policy="made up"):
        self.path = pathlib.Path(tempfile.mkdtemp(dir=scratch.name))
        for number, benchmarks in enumerate(repetitions, 1):
            (self.path / f"{number}.{run}.json").write_text(json.dumps({"benchmarks": benchmarks}))
        (self.path / "machine").write_text(f"- host: made up\n- policy: {policy}\n")

    def table(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            hot_table.main(self.path, str(self.path / "result"))
        return out.getvalue()

    def document(self):
        self.table()
        return str(self.path / "result.json")

    def row(self, beginning):
        rows = [line for line in self.table().splitlines() if line.startswith(f"| {beginning}")]
        assert len(rows) == 1, rows
        return [cell.strip() for cell in rows[0].strip("|").split("|")]


class DevicePeers(unittest.TestCase):
    """The table of ./dev gpu beside allocators that need a device."""

    @staticmethod
    def rows(**runs):
        folder = Folder()
        for run, figures in runs.items():
            (folder.path / f"1.{run}.json").write_text(json.dumps({"benchmarks": figures}))
        return [[cell.strip() for cell in line.strip("|").split("|")]
                for line in device_peers.table(hot_figures.Figures(folder.path))]

    def test_ours_are_those_taken_in_turn_with_pytorch(self):
        rows = self.rows(torch=[pair(10, 400)], torch_paged=[pair(20, 400)], driver_pool=[pair(11, 700)],
                         tcmalloc=[pair(12, 5)])
        self.assertEqual(rows[0][-3:], ["PyTorch", "the driver's pool", "tcmalloc"])
        self.assertEqual(rows[2], ["warm_pair/4096", "10.0", "20.0", "20.0", "40.0", "400", "700", "5.0"])

    def test_without_pytorch_ours_are_those_beside_the_drivers_pool(self):
        rows = self.rows(driver_pool=[pair(11, 700)])
        self.assertEqual(rows[0], ["work", "cistern, `classic`", "with the ring on", "the driver's pool"])
        self.assertEqual(rows[2], ["warm_pair/4096", "11.0", "22.0", "700"])

    def test_a_turn_that_one_of_them_cannot_make_is_a_gap(self):
        turn = bench("recorded_turn", cistern_ns=500, history_ns=600, cistern_plain_ns=9, history_plain_ns=30)
        rows = self.rows(torch=[{**turn, "peer_ns": 1400, "peer_plain_ns": 450}], driver_pool=[pair(11, 700), turn])
        self.assertEqual(rows[-2], ["recorded_turn, the plain pair", "9.0", "30.0", "450", "–"])
        self.assertEqual(rows[-1], ["recorded_turn", "500", "600", "1,400", "–"])

    def test_a_peer_that_was_not_there_has_no_column(self):
        alone = pair(10, 400)
        del alone["peer_ns"]
        self.assertEqual(self.rows(driver_pool=[pair(11, 700)], tcmalloc=[alone])[0][-1], "the driver's pool")


class HotTable(unittest.TestCase):
    def test_a_ratio_is_the_median_of_the_repetitions_ratios(self):
        row = Folder([pair(10, 5)], [pair(90, 30)], [pair(40, 5)]).row("warm pair of 4 KiB over")
        self.assertEqual(row[1:5], ["≤ 4", "3", "✓", "6"])

    def test_a_goal_that_is_missed_says_by_how_much(self):
        row = Folder([pair(40, 5)]).row("warm pair of 4 KiB over")
        self.assertEqual(row[2:4], ["8", "over by 4, 100 %"])

    def test_what_was_not_measured_is_skipped_and_not_judged(self):
        folder = Folder([pair(10, 5)])
        self.assertEqual(folder.row("two threads")[2:4], ["skipped", ""])
        self.assertIn("4 of 4 are met. 0 traces", folder.table())

    def test_the_goal_of_a_trace_goes_by_what_tcmalloc_needs(self):
        folder = Folder([bench("trace_replay/slow", cistern_ns=30.0, history_ns=30.0, peer_ns=40.0),
                         bench("trace_replay/fast", cistern_ns=30.0, history_ns=30.0, peer_ns=39.0)])
        self.assertEqual(folder.row("trace slow")[1:4], ["≤ 0.6", "0.75", "over by 0.15, 25 %"])
        self.assertEqual(folder.row("trace fast")[1:4], ["≤ 2", "0.769", "✓"])

    def test_the_drivers_own_time_is_taken_off(self):
        folder = Folder([bench("record_stream_pair", cistern_ns=120.0, history_ns=130.0, plain_ns=40.0,
                               plain_history_ns=40.0, driver_ns=20.0, driver_calls=2.0)])
        self.assertEqual(folder.row("allocate, record_stream")[2:4], ["2.5", "✓"])

    def test_one_host_allocation_on_a_hit_misses_the_goal(self):
        counters = {f"{who}_{work}": 0.0 for who in ("cistern", "history")
                    for work in ("pair_4KiB", "pair_20MiB", "recorded_pair", "mixed_sizes")}
        counters["history_mixed_sizes"] = 1.0
        row = Folder([bench("host_requests_on_hits", **counters)], run="metadata").row("host allocations")
        self.assertEqual(row[2:6], ["0", "✓", "1", "over by 1"])


class Comparing(unittest.TestCase):
    def compare(self, old, new, *arguments):
        sys.argv = ["compare", *arguments, old.document(), new.document()]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = compare_benchmarks.main()
        return status, out.getvalue()

    def test_what_moved_beyond_the_noise_is_told(self):
        old = Folder([pair(40, 10)], [pair(41, 10)])
        new = Folder([pair(30, 10)], [pair(31, 10)])
        status, text = self.compare(old, new, "--fail-on-worse")
        self.assertEqual(status, 0)
        self.assertIn("| tcmalloc warm_pair/4096 cistern_ns | 40.5 | 30.5 | -24.7 % | 5.0 % | better |", text)
        self.assertNotIn("peer_ns", text)

    def test_repetitions_that_overlap_have_not_moved(self):
        status, text = self.compare(Folder([pair(40, 10)], [pair(60, 10)]), Folder([pair(55, 10)], [pair(80, 10)]),
                                    "--fail-on-worse")
        self.assertEqual(status, 0)
        self.assertIn("Figures of goals: 0 of", text)

    def test_a_goal_that_became_worse_fails_where_that_is_asked(self):
        old, new = Folder([pair(40, 10)]), Folder([pair(50, 10)])
        self.assertEqual(self.compare(old, new)[0], 0)
        self.assertEqual(self.compare(old, new, "--fail-on-worse")[0], 1)

    def test_another_policy_is_told(self):
        old, new = Folder([pair(40, 10)], policy="classic"), Folder([pair(40, 10)], policy="paged")
        self.assertIn("Another policy: classic in the old run, paged in the new one.", self.compare(old, new)[1])
        self.assertNotIn("Another", self.compare(old, old)[1])

    def test_another_file_is_refused(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write("{}")
            file.flush()
            with self.assertRaisesRegex(SystemExit, "expected a JSON file of ./dev bench hot"):
                compare_benchmarks.read(file.name)


if __name__ == "__main__":
    unittest.main()
