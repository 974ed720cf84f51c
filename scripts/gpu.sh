#!/usr/bin/env bash
# ./dev gpu: what is built already, on a real device. Needs bash, awk and sed there, and no
# compiler, package or registry.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/device.sh
. "$root/scripts/device.sh"
# shellcheck source=scripts/replay_table.sh
. "$root/scripts/replay_table.sh"
# shellcheck source=scripts/device_peers.sh
. "$root/scripts/device_peers.sh"

usage() {
  cat <<'USAGE'
usage: ./dev gpu [--device cuda|simulated] [--build DIR]
       ./dev gpu --prepare
Runs the device tests and, where nvcc made it, the CUDA program of examples/, asks the driver
every statement of docs/conformance.md, times its calls, replays every workload and real trace
on the device and, where python3 is, times the hot path beside PyTorch's allocator, if that is
there, and the driver's own pool; writes bench/results/DEVICE.md, with every statement that did
not hold, and bench/costs.json.

  --device simulated   the same script over the simulated device, e.g. where there is no
                       GPU. What it says of costs is modelled, so it writes build/gpu-simulated/
                       instead: measured costs are never overwritten by modelled ones.
  --build DIR          the binaries: a build folder, or what --prepare made (by default
                       build/gpu if it is there, else build/release)
  --prepare            builds the binaries and puts them, with the libraries that they need,
                       into build/gpu, small enough to carry to the machine with the device

Exit status: 3 where there is no device, 1 if a test failed or a peer that is there could not be timed.
USAGE
}

binaries=(tools/cistern tests/gpu/cistern_gpu_tests tests/conformance/cistern_conformance bench/cistern_driver_costs)
# What times the hot path beside other allocators: release builds alone have it.
peer_binaries=(bench/cistern_bench bench/libcistern_driver_pool_peer.so)
# Made where there is a compiler for kernels, and run on a real device alone: the simulated one has none.
cuda_program=examples/cistern_cuda_program

prepare() {
  # shellcheck source=scripts/build.sh
  . "$root/scripts/build.sh"
  binaries+=("${peer_binaries[@]}")
  compile_quietly release "${binaries[@]}"
  if grep -q '^CISTERN_NVCC:FILEPATH=/' "$root/build/release/CMakeCache.txt"; then
    compile_quietly release "$cuda_program"
    binaries+=("$cuda_program")
  fi
  local into=$root/build/gpu binary library
  rm -rf "$into"
  mkdir -p "$into/lib"
  for binary in "${binaries[@]}"; do
    mkdir -p "$into/$(dirname "$binary")"
    strip -o "$into/$binary" "$root/build/release/$binary"
    # All but the C library's own, which must be the other machine's.
    ldd "$root/build/release/$binary" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' |
      { grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' || true; } |
      while read -r library; do cp -Lu "$library" "$into/lib/"; done
  done
  # A comparator of the hot path, where it is installed.
  library=$({ ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | awk '/libtcmalloc_minimal\.so\.4 / && !found++ { print $NF }')
  if [[ -n $library ]]; then cp -L "$library" "$into/lib/"; fi
  echo "prepared build/gpu: $(du -sh "$into" | cut -f1)"
}

device=cuda build=
while (($# > 0)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --device)
      [[ ${2:-} == cuda || ${2:-} == simulated ]] || {
        echo "./dev gpu: --device takes cuda or simulated, not '${2:-}'" >&2
        exit 2
      }
      device=$2
      shift
      ;;
    --build)
      [[ -d ${2:-} ]] || {
        echo "./dev gpu: --build takes a folder, and there is none named '${2:-}'" >&2
        exit 2
      }
      build=$(cd "$2" && pwd)
      shift
      ;;
    --prepare)
      prepare
      exit 0
      ;;
    *)
      echo "./dev gpu: unknown argument '$1'" >&2
      usage >&2
      exit 2
      ;;
  esac
  shift
done

if [[ $device == cuda ]] && ! has_gpu; then
  echo "./dev gpu: there is no NVIDIA device here (./dev gpu --device simulated runs without one)" >&2
  exit 3
fi
if [[ -z $build ]]; then
  build=$root/build/release
  if [[ -d $root/build/gpu ]]; then build=$root/build/gpu; fi
fi
for binary in "${binaries[@]}"; do
  [[ -x $build/$binary ]] || {
    echo "./dev gpu: $build/$binary is missing: ./dev gpu --prepare builds it, where there is a compiler" >&2
    exit 2
  }
done
if [[ -d $build/lib ]]; then export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi

scratch=$root/build/gpu-$device
mkdir -p "$scratch"

# The tests look at bytes and provoke out of memory; what is timed needs the accounts only.
tests_on=$device
statements_on=$device
export CISTERN_DEVICE=$device
if [[ $device == simulated ]]; then
  tests_on=simulated:capacity=4GiB
  statements_on=simulated:capacity=4GiB,devices=2,drive=free
  CISTERN_DEVICE=simulated:backing=none
fi

echo "== the device tests"
tests_passed=yes
CISTERN_DEVICE=$tests_on CISTERN_ALLOC_CONF=policy:classic "$build/tests/gpu/cistern_gpu_tests" 2>&1 | tee "$scratch/tests.log" || tests_passed=no

if [[ $device == cuda && -x $build/$cuda_program ]]; then
  echo "== the CUDA program: kernels, Thrust, a graph (examples/cuda/chain.cu)"
  "$build/$cuda_program" 2>&1 | tee "$scratch/cuda_program.log" || tests_passed=no
fi

# Each statement in a process of its own: what breaks the device's context, or waits for ever,
# spoils no other statement.
ask_statements() {
  local program=$build/tests/conformance/cistern_conformance suite="" line test asked=0 status
  rm -f "$scratch/differences"
  touch "$scratch/differences"
  while read -r line; do
    case $line in
      *.) suite=$line && continue ;;
      C[0-9][0-9][0-9]_*) test=$suite$line ;;
      *) continue ;;
    esac
    asked=$((asked + 1))
    status=0
    CISTERN_CONFORMANCE_REPORT=$scratch/differences timeout 90 "$program" --gtest_filter="$test" \
      >"$scratch/statement.log" 2>&1 </dev/null || status=$?
    # Above 1 it did not come to its end: no test of its own says so.
    if ((status > 1)); then
      echo "| ${line%%_*} | $test | did not end: exit status $status |" >>"$scratch/differences"
    fi
  done < <("$program" --gtest_list_tests)
  {
    echo "$asked statements were asked: $(count_numbers differ) did not hold, $(count_numbers "not asked") could not be asked."
    if [[ -s $scratch/differences ]]; then
      echo
      echo "| statement | what it says | what came |"
      echo "| --- | --- | --- |"
      sort "$scratch/differences"
    fi
  } >"$scratch/conformance.md"
  cat "$scratch/conformance.md"
  [[ $asked -gt 0 ]]
}
# How many statements are in the list of differences for that reason.
count_numbers() {
  if [[ $1 == "not asked" ]]; then
    grep '| not asked: ' "$scratch/differences" || true
  else
    grep -v '| not asked: ' "$scratch/differences" || true
  fi | cut -d '|' -f 2 | sort -u | wc -l
}

echo "== the statements of the documentation"
CISTERN_DEVICE=$statements_on ask_statements

echo "== the driver's calls"
"$build/bench/cistern_driver_costs" --costs "$scratch/costs.json" | tee "$scratch/costs.md"

echo "== the replays"
# Plain commands, so that a workload that fails ends the script.
workload_traces "$build/tools/cistern" >"$scratch/traces"
real_traces >>"$scratch/traces"
mapfile -t traces <"$scratch/traces"
# Not policy direct: millions of real driver calls, whose cost the table above already says.
replay_table "$build/tools/cistern" classic "${traces[@]}" | tee "$scratch/replays.md"

rm -f "$scratch/peers.md"
peers_timed=yes
if [[ $device == cuda ]]; then
  if [[ -x $build/${peer_binaries[0]} ]] && command -v python3 >/dev/null; then
    echo "== the hot path beside allocators of the device"
    device_peers | tee "$scratch/peers.md" || peers_timed=no
  else
    echo "./dev gpu: without python3 and $build/${peer_binaries[0]} the hot path is not timed beside others" >&2
  fi
fi

name=$(sed -n 's/.*"device":"\([^"]*\)".*/\1/p' "$scratch/replay.json")
slug=$(tr '[:upper:] ' '[:lower:]-' <<<"${name:-$device}" | tr -cd 'a-z0-9.-')
{
  echo "# ${name:-$device}"
  echo
  echo "Written by \`./dev gpu --device $device\`."
  echo
  machine_lines
  if [[ $device == cuda ]] && command -v nvidia-smi >/dev/null; then
    echo "- driver: $(nvidia-smi --query-gpu=driver_version,memory.total --format=csv,noheader | head -n 1)"
  fi
  echo
  echo "## Device tests"
  echo
  sed -n 's/^\[  \(PASSED\|FAILED\|SKIPPED\)  *\] */- \L\1\E: /p' "$scratch/tests.log"
  echo
  echo "## Statements of the CUDA documentation"
  echo
  echo "By number, as \`docs/conformance.md\` lists them."
  echo
  cat "$scratch/conformance.md"
  echo
  echo "## Driver calls"
  echo
  cat "$scratch/costs.md"
  echo
  echo "## Replays: policy \`classic\`"
  echo
  echo "Driver time is modelled, by the costs that \`bench/costs.json\` had before this run."
  echo
  cat "$scratch/replays.md"
  if [[ -s $scratch/peers.md ]]; then
    echo
    echo "## The hot path beside allocators of the device"
    echo
    cat "$scratch/peers.md"
  fi
} >"$scratch/$slug.md"

if [[ $device == cuda ]]; then
  mkdir -p "$root/bench/results"
  cp "$scratch/$slug.md" "$root/bench/results/$slug.md"
  cp "$scratch/costs.json" "$root/bench/costs.json"
  echo "written: bench/results/$slug.md, bench/costs.json"
else
  echo "written: build/gpu-simulated/$slug.md and costs.json there"
fi
[[ $tests_passed == yes && $peers_timed == yes ]]
