"""The goals of the hot path, a row each, from what was measured."""

import statistics

# tcmalloc's time of an operation of a trace from which the stricter goal holds.
SLOW_TCMALLOC_NS = 40


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class Row:
    """A line of the table: the repetitions without and with history, and what is wanted; goal None: reported."""

    def __init__(self, title, goal, off, on, pytorch="", unit="", note=""):
        self.title, self.goal, self.off, self.on = title, goal, off, on
        self.pytorch, self.unit, self.note = pytorch, unit, note

    def with_unit(self, text):
        return f"{text} {self.unit}" if self.unit else text

    def shown(self, values):
        return "skipped" if values is None else self.with_unit(number(statistics.median(values)))

    def met(self, values):
        return None if self.goal is None or values is None else statistics.median(values) <= self.goal

    def verdict(self, values):
        met = self.met(values)
        if met is None or met:
            return "" if met is None else "✓"
        over = statistics.median(values) - self.goal
        return "over by " + self.with_unit(number(over)) + (f", {100 * over / self.goal:.0f} %" if self.goal else "")

    def markdown(self):
        goal = "reported" if self.goal is None else "≤ " + self.with_unit(f"{self.goal:,g}")
        spread = "" if self.off is None else f"{number(min(self.off))} to {number(max(self.off))}"
        cells = [self.title, goal, self.shown(self.off), self.verdict(self.off), self.shown(self.on),
                 self.verdict(self.on), spread, self.pytorch, self.note]
        return "| " + " | ".join(cells) + " |"

    def json(self):
        return {"figure": self.title, "goal": self.goal, "unit": self.unit, "without_history": self.off,
                "with_history": self.on, "met": self.met(self.off), "met_with_history": self.met(self.on)}


def against_peer(bench, title, goal, pytorch="", ours="cistern_ns", with_history="history_ns"):
    note = f"{bench.ns(ours)}, tcmalloc {bench.ns('peer_ns')}" if bench.values("peer_ns") else bench.ns(ours)
    return Row(title, goal, bench.ratio(ours, "peer_ns"), bench.ratio(with_history, "peer_ns"), pytorch, note=note)


def pair_rows(figures):
    for title, size, goal, pytorch in (("4 KiB", 4096, 4, "27"), ("20 MiB", 20 << 20, 1, "3.6")):
        bench = figures.bench("tcmalloc", f"warm_pair/{size}")
        yield against_peer(bench, f"warm pair of {title} over tcmalloc's", goal, pytorch)
        yield against_peer(bench, f"warm pair of {title} by the free functions, over tcmalloc's", goal, "",
                           "process_ns", "process_history_ns")
    for live, pytorch in ((1000, "5.5"), (10000, "3.6")):
        bench = figures.bench("tcmalloc", f"mixed_sizes/{live}")
        yield against_peer(bench, f"mixed sizes to 20 MiB, {live:,} live, over tcmalloc", 1, pytorch)


def rows_among_free_blocks(figures, bench, title, others, goal, remark=""):
    off, on = (figures.bench("tcmalloc", f"{bench}/{ring}") for ring in ("history_off", "history_on"))
    for free, count in (("1 Ki", 1024), ("32 Ki", 32 * 1024), ("1 Mi", 1024 * 1024)):
        counters = (f"among_{count}_ns", "among_0_ns")
        note = f"{off.ns(counters[0])}, with none {off.ns(counters[1])}{remark}" if off else ""
        yield Row(f"{title} among {free} free blocks{others}", goal, off.ratio(*counters), on.ratio(*counters), note=note)


def flatness_rows(figures):
    yield from rows_among_free_blocks(figures, "flat_pair", "warm pair", " of other sizes, over the pair with none", 1.25,
                                      "; none of them is looked at")
    yield from rows_among_free_blocks(figures, "flat_search", "random sizes to 1 MiB, 16 live,",
                                      ", over the same with none", None)


def with_driver_calls(row, bench, digits):
    if (calls := bench.median("driver_calls") or 0) >= 0.5 / 10**digits:
        row.note += f", {calls:.{digits}f} driver calls an operation"
    return row


def trace_rows(figures):
    for name in figures.names("trace_replay/"):
        bench = figures.bench("tcmalloc", name)
        peer = bench.median("peer_ns")
        goal = None if peer is None else 0.6 if peer >= SLOW_TCMALLOC_NS else 2
        row = against_peer(bench, f"trace {name.split('/')[1]}, an operation over tcmalloc's", goal, "2.2 to 9.8")
        yield with_driver_calls(row, bench, 2)


def step_rows(figures):
    for name, steps in (("lengths", "steps of a transformer, each of another length"),
                        ("sizes", "steps in which one size in 100 changes")):
        bench = figures.bench("tcmalloc", f"changing_steps/{name}")
        yield with_driver_calls(against_peer(bench, f"{steps}, an operation over tcmalloc's", None), bench, 3)


def latency_rows(figures):
    for name, work in (("latency_of_pairs", "of 4 KiB pairs"),
                       ("latency_of_mixed_sizes", "in mixed sizes, 1,000 live")):
        bench = figures.bench("tcmalloc", name)
        note = ""
        if bench:
            note = f"median {bench.ns('cistern_median_ns')}, of which the clock {bench.ns('clock_ns')}"
        if bench.values("peer_median_ns"):
            note += f"; tcmalloc's {bench.ns('peer_p999_over_median_ns')}"
        yield Row(f"99.9th percentile of warm operations {work}, over the median", 150,
                  bench.values("cistern_p999_over_median_ns"), bench.values("history_p999_over_median_ns"),
                  unit="ns", note=note)
        for counter, words in (("p9999_ns", "99.99th percentile"), ("maximum_ns", "maximum")):
            note = f"tcmalloc's {bench.ns('peer_' + counter)}" if bench.values("peer_" + counter) else ""
            yield Row(f"{words} of warm operations {work}", None, bench.values("cistern_" + counter),
                      bench.values("history_" + counter), unit="ns", note=note)


def busy_note(bench):
    dropped = bench.median("dropped_rounds")
    return f"a busy machine: {dropped:.0f} rounds dropped; " if dropped and dropped >= 100 else ""


def thread_rows(figures):
    bench = figures.bench("tcmalloc", "two_threads")
    note = busy_note(bench)
    if bench.values("cistern_two_ns"):
        note += f"{bench.ns('cistern_one_ns')} to {bench.ns('cistern_two_ns')}, {bench.median('processors'):.0f} processors"
    yield Row("two threads, each on its own stream: a pair of 4 KiB over one thread's", 1.1,
              bench.ratio("cistern_two_ns", "cistern_one_ns"), bench.ratio("history_two_ns", "history_one_ns"),
              "4 to 8", note=note)
    for name, words in (("expandable_segments", "with expandable segments"), ("max_split_size", "with a split limit"),
                        ("garbage_collection", "with garbage collection by age"), ("a_tag", "with a tag"),
                        ("a_pool", "from a MemPool"), ("a_thread_in_a_pool", "beside a thread in a MemPool")):
        bench = figures.bench("tcmalloc", f"pair_under/{name}")
        note = f"{bench.ns('cistern_ns')}, without {bench.ns('plain_ns')}" if bench else ""
        yield Row(f"warm pair of 4 KiB {words}, over the pair without", None,
                  bench.ratio("cistern_ns", "plain_ns"), bench.ratio("history_ns", "plain_history_ns"), note=note)
        note = f"{bench.ns('two_ns')}, without {bench.ns('plain_two_ns')}" if bench else ""
        yield Row(f"the same on two threads, each on its own stream, {words}, over one thread's", None,
                  bench.ratio("two_ns", "cistern_ns"), bench.ratio("history_two_ns", "history_ns"), note=note)
    bench = figures.bench("tcmalloc", "hand_over_between_threads")
    note = busy_note(bench)
    if bench.values("cistern_one_lock_ns"):
        note += f"{bench.ns('cistern_ns')}, with the lock {bench.ns('cistern_one_lock_ns')}"
    yield Row("threads that hand blocks to each other, over the same with one lock around it all", 0.4,
              bench.ratio("cistern_ns", "cistern_one_lock_ns"), bench.ratio("history_ns", "history_one_lock_ns"),
              note=note + (f", tcmalloc {bench.ns('peer_ns')}" if bench.values("peer_ns") else ""))


def stream_rows(figures):
    bench = figures.bench("tcmalloc", "record_stream_pair")

    def beside_driver(recorded, plain):
        return bench.combined(lambda a, driver, b: (a - driver) / b, recorded, "driver_ns", plain)

    note = ""
    if bench:
        note = (f"{bench.ns('cistern_ns')} with {bench.median('driver_calls'):.3g} driver calls, which alone take "
                f"{bench.ns('driver_ns')}; the plain pair {bench.ns('plain_ns')}")
    yield Row("allocate, record_stream, free, reuse, without the driver's calls, over the plain pair", 2.5,
              beside_driver("cistern_ns", "plain_ns"), beside_driver("history_ns", "plain_history_ns"), "2.3",
              note=note)
    for count in (2, 8, 32, 200, 1000):
        bench = figures.bench("tcmalloc", f"streams_in_turn/{count}")
        yield Row(f"{count} streams in turn on one thread, each up to the peak, over one stream", None,
                  bench.ratio("cistern_ns", "one_ns"), bench.ratio("history_ns", "one_history_ns"),
                  note=f"{bench.ns('cistern_ns')} a block that comes and goes" if bench else "")
    bench = figures.bench("tcmalloc", "first_allocation_on_new_stream")
    note = ""
    if bench:
        note = (f"beside {bench.median('driver_calls'):.3g} driver calls, whose timing takes "
                f"{bench.ns('stop_watch_ns')}; 99th percentile {bench.ns('cistern_p99_ns')}")
    yield Row("first allocation on a new stream of a warm device, beside driver calls", 1000,
              bench.values("cistern_ns"), bench.values("history_ns"), unit="ns", note=note)


def metadata_note(bench):
    taken, reserved = (bench.median(counter) / 2**20 for counter in ("cistern_bytes", "reserved_bytes"))
    return f"{taken:.2f} MiB of {reserved:,.0f} MiB reserved"


def summed(benches, counter):
    each = [bench.values(counter) for bench in benches]
    return None if any(values is None for values in each) else [sum(values) for values in zip(*each)]


def metadata_rows(figures):
    traces = [figures.bench("metadata", name) for name in figures.names("metadata_of_trace/")]
    if traces:
        off, on = (max(traces, key=lambda bench, who=who: bench.median(f"{who}_over_goal"))
                   for who in ("cistern", "history"))
        yield Row(f"metadata over 0.1 % of reserved memory plus 1 MiB, worst of {len(traces)} traces", 1,
                  off.values("cistern_over_goal"), on.values("history_over_goal"),
                  note=f"{off.name.split('/')[1]}: {metadata_note(off)}")
    mixed = figures.bench("metadata", "metadata_of_mixed_sizes")
    yield Row("metadata over that, mixed sizes to 20 MiB, 10,000 live", 1, mixed.values("cistern_over_goal"),
              mixed.values("history_over_goal"), note=metadata_note(mixed) if mixed else "")
    hits = figures.bench("metadata", "host_requests_on_hits")
    works = ("pair_4KiB", "pair_20MiB", "recorded_pair", "mixed_sizes")
    totals = [hits.combined(lambda *counts: sum(counts), *(f"{who}_{work}" for work in works))
              for who in ("cistern", "history")]
    some = [f"{work} {hits.median('cistern_' + work):.0f}" for work in works if hits.median("cistern_" + work)]
    if misses := hits.median("cistern_misses"):
        some.append(f"{misses:.0f} that called the driver are left out")
    yield Row("host allocations on 50,000 hits", 0, *totals, note=", ".join(some))
    if traces:
        totals = [summed(traces, f"{who}_requests_of_hits") for who in ("cistern", "history")]
        operations = sum(bench.median("operations") for bench in traces)
        yield Row(f"host allocations in the ninth pass of {len(traces)} traces, where the driver is not called", 0,
                  *totals, note=f"{operations:,.0f} operations")


def instruction_rows(figures):
    for work, title, pytorch in (("pair_4096", "a warm pair of 4 KiB", "2,996"),
                                 ("pair_20971520", "a warm pair of 20 MiB", ""),
                                 ("process_4096", "a warm pair of 4 KiB by the free functions", ""),
                                 ("mixed_1000", "a free and an allocation in mixed sizes, 1,000 live", "")):
        peer = figures.bench("callgrind", work.replace("pair_", "peer_")).median("instructions")
        yield Row(f"instructions of {title}", None, figures.bench("callgrind", work).values("instructions"),
                  figures.bench("callgrind", f"{work}_history").values("instructions"), pytorch,
                  note=f"tcmalloc's {peer:,.0f}" if work.startswith("pair_") and peer is not None else "")


def goal_rows(figures):
    for rows in (pair_rows, flatness_rows, trace_rows, step_rows, latency_rows, thread_rows, stream_rows, metadata_rows,
                 instruction_rows):
        yield from rows(figures)
