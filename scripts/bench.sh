#!/usr/bin/env bash
# ./dev bench: the benchmarks and the replays, as one Markdown file.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"
# shellcheck source=scripts/replay_table.sh
. "$root/scripts/replay_table.sh"
# shellcheck source=scripts/arguments.sh
. "$root/scripts/arguments.sh"

usage() {
  cat <<'USAGE'
usage: ./dev bench [--name NAME] [BENCHMARK ARGUMENTS...]
       ./dev bench hot ...              the goals of the hot path: see ./dev bench hot --help
       ./dev bench memory ...           what each policy reserves: see ./dev bench memory --help
       ./dev bench compare OLD NEW      what moved between two JSON files of "hot"
Builds and runs the benchmarks and replays every workload and real trace over the simulated
device. Writes bench/results/NAME.md (by default simulated-host.md). Other arguments go to
Google Benchmark, e.g. --benchmark_filter=Warm. Quiet machines give figures worth keeping.
USAGE
}

case ${1:-} in
  hot) exec "$root/scripts/bench_hot.sh" "${@:2}" ;;
  memory) exec "$root/scripts/bench_memory.sh" "${@:2}" ;;
  compare) exec "$root/scripts/compare_benchmarks.py" "${@:2}" ;;
esac

name=simulated-host
arguments=()
while (($# > 0)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --name)
      require_result_name "./dev bench" "${2:-}"
      name=$2
      shift
      ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

# Google Benchmark's JSON, one key a line, as a table: what follows "time_unit" is counters.
benchmark_table() {
  awk '
    BEGIN {
      print "| benchmark | ns | iterations | counters |"
      print "| --- | ---: | ---: | --- |"
    }
    /"benchmarks": \[/ { inside = 1; next }
    !inside { next }
    /^ *"/ {
      key = $1
      gsub(/[":]/, "", key)
      value = $0
      sub(/^[^:]*: */, "", value)
      sub(/,$/, "", value)
      gsub(/"/, "", value)
      if (key == "label" || key == "error_message") counters = counters (counters == "" ? "" : ", ") value
      else if (after_unit) counters = counters (counters == "" ? "" : ", ") key " " sprintf("%.4g", value)
      seen[key] = value
      if (key == "time_unit") after_unit = 1
    }
    /^ *}/ && ("name" in seen) {
      scale = seen["time_unit"] == "ms" ? 1e6 : seen["time_unit"] == "us" ? 1e3 : 1
      printf "| %s | %.1f | %s | %s |\n", seen["name"], seen["real_time"] * scale, seen["iterations"], counters
      delete seen
      counters = ""
      after_unit = 0
    }'
}

require_packages "${bench_packages[@]}"
compile_quietly release cistern_bench cistern_comm_bench cistern_snapshot_bench tools/cistern
command=$root/build/release/tools/cistern
export CISTERN_DEVICE=simulated

scratch=$root/build/bench
mkdir -p "$scratch"
result=$root/bench/results/$name.md
mkdir -p "$root/bench/results"
# Plain commands, so that a workload that fails ends the script.
workload_traces "$command" >"$scratch/traces"
real_traces >>"$scratch/traces"
mapfile -t traces <"$scratch/traces"
{
  echo "# Benchmarks: $name"
  echo
  echo "Written by \`./dev bench\`; times are the host's, driver times are modelled."
  echo
  machine_lines
  echo "- build: release, $("${CXX:-c++}" --version | head -n 1)"
  echo
  echo "## Microbenchmarks"
  echo
  "$root/build/release/bench/cistern_bench" --benchmark_format=json "${arguments[@]}" | benchmark_table
  echo
  echo "## The command on snapshots of 1,000,000 entries and 100,000 blocks"
  echo
  "$root/build/release/bench/cistern_snapshot_bench"
  echo
  echo "## Collectives in virtual time, by the settings in bench/comm_bench.cpp"
  echo
  "$root/build/release/bench/cistern_comm_bench"
  for policy in classic direct; do
    echo
    echo "## Replays: policy \`$policy\`"
    echo
    replay_table "$command" "$policy" "${traces[@]}"
  done
} >"$scratch/result.md"
mv "$scratch/result.md" "$result"
cat "$result"
echo "written to bench/results/$name.md" >&2
