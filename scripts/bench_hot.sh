#!/usr/bin/env bash
# ./dev bench hot: the goals of the hot path, each measured, as one table.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"
# shellcheck source=scripts/replay_table.sh
. "$root/scripts/replay_table.sh"
# shellcheck source=scripts/arguments.sh
. "$root/scripts/arguments.sh"

usage() {
  cat <<'USAGE'
usage: ./dev bench hot [--name NAME] [--policy NAME] [--repetitions N] [--quick] [--filter REGEX] [--real-time]
Builds the benchmarks of the hot path, runs them beside the peers, each peer in a process of its
own, counts the instructions of a warm pair under callgrind, and prints the goals with what was
measured. Writes bench/results/NAME.md and NAME.json (by default hot). docs/benchmarks.md says how
to read them. An idle machine gives figures worth keeping.

  --policy NAME     classic (the default: PyTorch's rules, as the peers have them) or paged
  --repetitions N   what the goals name, N times, medians (by default 3); the other peers once
  --quick           tcmalloc only, no callgrind, one repetition; writes to build/bench/ instead
  --filter REGEX    only benchmarks of these names: warm_pair, trace_replay/synth-etl ...
  --real-time       for a machine that is not idle: before everything else that runs on it (chrt, as
                    root), which stands still meanwhile
USAGE
}

name=hot
policy=classic
repetitions=3
quick=false
filter=.
schedule=()
while (($# > 0)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --name)
      require_result_name "./dev bench hot" "${2:-}"
      name=$2
      shift
      ;;
    --policy)
      [[ ${2:-} == classic || ${2:-} == paged ]] || {
        echo "./dev bench hot: --policy takes classic or paged, not '${2:-}'" >&2
        exit 2
      }
      policy=$2
      shift
      ;;
    --repetitions)
      [[ ${2:-} =~ ^[1-9][0-9]?$ ]] || {
        echo "./dev bench hot: --repetitions takes a number from 1 to 99, not '${2:-}'" >&2
        exit 2
      }
      repetitions=$2
      shift
      ;;
    --quick)
      quick=true
      repetitions=1
      ;;
    --real-time) schedule=(chrt --rr 1) ;;
    --filter)
      filter=${2:?"./dev bench hot: --filter takes a regular expression"}
      shift
      ;;
    *) refuse_argument "./dev bench hot" "$1" ;;
  esac
  shift
done

export CISTERN_BENCH_POLICY=$policy
packages=("${bench_packages[@]}" python3)
$quick || packages+=("${hot_packages[@]}")
require_packages "${packages[@]}"
compile_quietly release cistern_hot_benches
programs=$root/build/release/bench

load=$(cut -d ' ' -f 1-3 /proc/loadavg)
scratch=$root/build/bench/hot
rm -rf "$scratch"
mkdir -p "$scratch"
traces=$(real_traces | head -n 1)
if [[ -n $traces ]]; then
  CISTERN_BENCH_TRACES=$(dirname "$traces")
  export CISTERN_BENCH_TRACES
else
  echo "./dev bench hot: there is no folder of real traces: their rows are left out" >&2
fi

# What the names of benchmarks must match: the hot path's, and those that tell of a peer. Who asks what new
# streams cost begins with host memory that nobody has used: in a process of its own.
hot_names='^(warm_pair|mixed_sizes|changing_steps|flat_(pair|search)|trace_replay|latency_of|two_threads|hand_over|record_stream_pair|streams_in_turn|pair_under)'
new_names='^first_allocation'
peer_names='^(warm_pair|mixed_sizes|changing_steps|trace_replay|two_threads)'

# run_benchmarks PROGRAM NAMES RESULT: those of its benchmarks that match NAMES and the filter, which
# Google Benchmark's own filters cannot say.
run_benchmarks() {
  local chosen
  chosen=$("$1" --benchmark_list_tests | grep -E "$2" | grep -E "$filter" | paste -sd '|' -) || true
  [[ -n $chosen ]] || return 0
  "${schedule[@]}" "$1" --benchmark_filter="^($chosen)\$" --benchmark_out="$3" --benchmark_out_format=json >"$scratch/log" 2>&1 || {
    cat "$scratch/log" >&2
    return 1
  }
}

# instructions WORK: of one of WORK's operations, exactly, as "WORK COUNT".
instructions() {
  local pairs counts=()
  for pairs in 0 2000; do
    counts+=("$(valgrind --tool=callgrind --callgrind-out-file=/dev/null \
      "$programs/cistern_pair_instructions" "$1" "$pairs" 2>&1 | sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p')")
  done
  [[ -n ${counts[0]} && -n ${counts[1]} ]] || {
    echo "./dev bench hot: valgrind could not run '$1'" >&2
    return 0
  }
  awk -v work="$1" -v first="${counts[0]}" -v last="${counts[1]}" \
    'BEGIN { printf "%s %.2f\n", work, (last - first) / 2000 }'
}

peers=(tcmalloc)
others=
if ! $quick; then
  peers+=(glibc mimalloc jemalloc cub)
  others=", of peers beside tcmalloc 1"
fi
for ((repetition = 1; repetition <= repetitions; ++repetition)); do
  echo "./dev bench hot: repetition $repetition of $repetitions" >&2
  for peer in "${peers[@]}"; do
    # No goal names the others, and one of them takes ten times as long as all else.
    [[ $peer == tcmalloc ]] || ((repetition == 1)) || continue
    pattern=$peer_names
    if [[ $peer == tcmalloc ]]; then pattern=$hot_names; fi
    # jemalloc wants more thread-local memory than the loader keeps for what is loaded late.
    GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384 CISTERN_BENCH_PEER=$peer run_benchmarks "$programs/cistern_bench" "$pattern" "$scratch/$repetition.$peer.json"
  done
  run_benchmarks "$programs/cistern_bench" "$new_names" "$scratch/$repetition.tcmalloc.new.json"
  run_benchmarks "$programs/cistern_metadata_bench" . "$scratch/$repetition.metadata.json"
done
if ! $quick && [[ $filter == . ]]; then
  echo "./dev bench hot: counting instructions" >&2
  for work in pair_4096 pair_4096_history pair_20971520 pair_20971520_history process_4096 process_4096_history \
    mixed_1000 mixed_1000_history peer_4096 peer_20971520; do
    instructions "$work"
  done >"$scratch/instructions"
fi
{
  machine_lines
  echo "- build: release, $("${CXX:-c++}" --version | head -n 1)"
  echo "- policy: $policy"
  echo "- load before: $load; repetitions: $repetitions$others${schedule:+, at real-time priority}"
} >"$scratch/machine"

results=$root/bench/results
if $quick || [[ $filter != . ]]; then results=$root/build/bench; fi
mkdir -p "$results"
"$root/scripts/hot_table.py" "$scratch" "$results/$name"
echo "written to ${results#"$root"/}/$name.md and $name.json" >&2
