#!/usr/bin/env python3
"""The summary table once more, written from the description of PyTorch's memory_summary alone.

usage: summary_reference.py PROGRAM COUNT SEED

Checks itself by the published digests of a worked example, then that PROGRAM COUNT SEED (see
summary_sets.cpp) prints COUNT sets of counters whose texts equal its own, byte for byte.
"""

import hashlib
import json
import subprocess
import sys
from fractions import Fraction

BODY = 75

GROUPS = [
    ("allocated_bytes", "Allocated memory", "size"),
    ("active_bytes", "Active memory", "size"),
    ("requested_bytes", "Requested memory", "size"),
    ("reserved_bytes", "GPU reserved memory", "size"),
    ("inactive_split_bytes", "Non-releasable memory", "size"),
    ("allocation", "Allocations", "count"),
    ("active", "Active allocs", "count"),
    ("segment", "GPU reserved segments", "count"),
    ("inactive_split", "Non-releasable allocs", "count"),
]
METRICS = ["current", "peak", "allocated", "freed"]


def cell(kind, value, reference):
    """The unit follows from the reference, divided as a real number; the value is floored."""
    if kind == "size":
        units, limit, step = ["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"], 768 * 1024, 1024
    else:
        units, limit, step = [" ", "K", "M"], 750000, 1000
    reference = Fraction(reference)
    unit = 0
    while reference >= limit and unit < len(units) - 1:
        unit += 1
        value //= step
        reference /= step
    if kind == "size":
        return str(value).rjust(6) + " " + units[unit]
    return str(value).rjust(7) + " " + units[unit] + " "


def row(label, kind, values, references):
    cells = [cell(kind, value, reference) for value, reference in zip(values, references)]
    return " " + label.ljust(21) + "".join(" | " + text for text in cells) + " "


def summary(stats, device, abbreviated, title):
    def column(prefix):
        return [stats[prefix + "." + metric] for metric in METRICS]

    lines = ["=" * BODY]
    lines.append(" " + " " * 16 + " " + title + " CUDA memory summary, device ID " + str(device).ljust(17) + " ")
    lines.append("-" * BODY)
    lines.append("  " + " " * 9 + " " + "CUDA OOMs: " + str(stats["num_ooms"]).ljust(12) + " | " + " " * 6 + " "
                 + "cudaMalloc retries: " + str(stats["num_alloc_retries"]).ljust(8) + "  ")
    lines.append("=" * BODY)
    lines.append("        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ")
    for key, label, kind in GROUPS:
        lines.append("-" * BODY)
        references = column(key + ".all")
        lines.append(row(label, kind, references, references))
        if not abbreviated:
            lines.append(row("      from large pool", kind, column(key + ".large_pool"), references))
            lines.append(row("      from small pool", kind, column(key + ".small_pool"), references))
    for key, label in (("oversize_allocations", "Oversize allocations"), ("oversize_segments", "Oversize GPU segments")):
        lines.append("-" * BODY)
        lines.append(row(label, "count", column(key), column(key)))
    lines.append("=" * BODY)
    return "".join("|" + line + "|\n" for line in lines)


# current / peak / allocated / freed of all, large pool, small pool.
EXAMPLE = {
    "allocated_bytes": [[3759017984, 5370806272, 43264245760, 39505227776],
                        [3758096384, 5368709120, 42949672960, 39191576576], [921600, 2097152, 314572800, 313651200]],
    "active_bytes": [[3893235712, 5370806272, 43264245760, 39371010048],
                     [3892314112, 5368709120, 42949672960, 39057358848], [921600, 2097152, 314572800, 313651200]],
    "requested_bytes": [[3746363473, 5370709113, 42180018176, 38433654703],
                        [3745513472, 5368709113, 41875931136, 38130417664], [850001, 2000000, 304087040, 303237039]],
    "reserved_bytes": [[6446645248, 6448742400, 8596226048, 2149580800],
                       [6442450944, 6442450944, 8589934592, 2147483648], [4194304, 6291456, 6291456, 2097152]],
    "inactive_split_bytes": [[527560704, 738197504, 9873391616, 9345830912],
                             [524288000, 734003200, 9663676416, 9139388416], [3272704, 4194304, 209715200, 206442496]],
    "allocation": [[760, 880, 13094678, 13093918], [120, 180, 749000, 748880], [640, 700, 12345678, 12345038]],
    "active": [[764, 880, 13094678, 13093914], [124, 180, 749000, 748876], [640, 700, 12345678, 12345038]],
    "segment": [[32, 33, 43, 11], [30, 30, 40, 10], [2, 3, 3, 1]],
    "inactive_split": [[26, 37, 1000900, 1000874], [17, 25, 900, 883], [9, 12, 1000000, 999991]],
}
EXAMPLE_DIGESTS = {
    False: "825531079402d6f218d710415f4271d550b540cd53d1548ab1ef2eea6c4cf60f",
    True: "b91e5b02d28291f4d6bf13b6515bd2f4df25e11ed61c7855869df0776a124aab",
}


def example():
    stats = {"num_ooms": 2, "num_alloc_retries": 5}
    for key, pools in EXAMPLE.items():
        for pool, values in zip(["all", "large_pool", "small_pool"], pools):
            stats.update({f"{key}.{pool}.{metric}": value for metric, value in zip(METRICS, values)})
    for key, values in (("oversize_allocations", [1, 2, 3, 2]), ("oversize_segments", [1, 1, 1, 0])):
        stats.update({f"{key}.{metric}": value for metric, value in zip(METRICS, values)})
    return stats


def main():
    program, count, seed = sys.argv[1:]
    for abbreviated, digest in EXAMPLE_DIGESTS.items():
        text = summary(example(), 3, abbreviated, "PyTorch")
        if hashlib.sha256(text.encode("ascii")).hexdigest() != digest:
            sys.exit("the reference itself differs from the worked example:\n" + text)
    lines = subprocess.run([program, count, seed], check=True, stdout=subprocess.PIPE).stdout.splitlines()
    if len(lines) != int(count):
        sys.exit(f"{program} printed {len(lines)} sets, {count} were asked for")
    for number, line in enumerate(lines, 1):
        given = json.loads(line)
        expected = summary(given["stats"], given["device"], given["abbreviated"], given["title"])
        if given["text"] != expected:
            sys.exit(f"set {number} of seed {seed}: cistern's text\n{given['text']}differs from the reference's\n{expected}")
    print(f"{len(lines)} summaries equal the reference's, byte for byte")


if __name__ == "__main__":
    main()
