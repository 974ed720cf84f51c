#!/usr/bin/env bash
# ./dev bench: the benchmarks and the replays, as one Markdown file.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"
# shellcheck source=scripts/replay_table.sh
. "$root/scripts/replay_table.sh"

usage() {
  cat <<'USAGE'
usage: ./dev bench [--name NAME] [BENCHMARK ARGUMENTS...]
Builds and runs the benchmarks and replays every workload and real trace over the simulated
device. Writes bench/results/NAME.md (by default simulated-host.md). Other arguments go to
Google Benchmark, e.g. --benchmark_filter=Warm. Quiet machines give figures worth keeping.
USAGE
}

name=simulated-host
arguments=()
while (($# > 0)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --name)
      [[ ${2:-} =~ ^[A-Za-z0-9._-]+$ ]] || {
        echo "./dev bench: --name takes letters, digits, '.', '_' and '-', not '${2:-}'" >&2
        exit 2
      }
      name=$2
      shift
      ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

# Google Benchmark's CSV as a table: the name, the times, then each counter that has a value.
benchmark_table() {
  awk -F, '
    /^name,/ {
      for (i = 1; i <= NF; ++i) { gsub(/"/, "", $i); column[$i] = i }
      for (i = column["error_message"] + 1; i <= NF; ++i) counters[++count] = i
      printf "| benchmark | ns | CPU ns | iterations |"
      for (i = 1; i <= count; ++i) printf " %s |", $counters[i]
      printf "\n| --- | ---: | ---: | ---: |"
      for (i = 1; i <= count; ++i) printf " ---: |"
      print ""
      next
    }
    column["name"] {
      gsub(/"/, "")
      scale = $column["time_unit"] == "ms" ? 1e6 : $column["time_unit"] == "us" ? 1e3 : 1
      printf "| %s | %.1f | %.1f | %s |", $1, $column["real_time"] * scale, $column["cpu_time"] * scale, $column["iterations"]
      for (i = 1; i <= count; ++i) printf " %s |", $counters[i]
      print ""
    }'
}

require_packages "${bench_packages[@]}"
compile_quietly release cistern_bench tools/cistern
command=$root/build/release/tools/cistern
export CISTERN_DEVICE=simulated

scratch=$root/build/bench
mkdir -p "$scratch"
result=$root/bench/results/$name.md
mkdir -p "$root/bench/results"
mapfile -t traces < <(workload_traces "$command" && real_traces)
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
  "$root/build/release/bench/cistern_bench" --benchmark_format=csv "${arguments[@]}" | benchmark_table
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
