# The hot path beside allocators that need a device. To be sourced; needs `root`, `scratch` and `build`.
# shellcheck shell=bash disable=SC2154

# make_torch_peer FOLDER: compiles PyTorch's allocator as a peer into FOLDER and prints PyTorch's version; fails
# where python3 has none with CUDA, or there is no compiler.
make_torch_peer() {
  local version torch include
  command -v c++ >/dev/null || return 1
  version=$(python3 -c 'import torch; print(torch.__version__ if torch.cuda.is_available() else "")' 2>/dev/null) || return 1
  [[ -n $version ]] || return 1
  torch=$(python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)')
  # Of the Toolkit that is installed, or of the one that came with PyTorch.
  include=$(find -L "${CUDA_HOME:-/usr/local/cuda}/include" "$torch/../nvidia" -name cuda_runtime_api.h 2>/dev/null | head -n 1)
  c++ -std=c++20 -O2 -fPIC -shared -isystem "$torch/include" -isystem "$(dirname "${include:-/}")" \
    "$root/bench/torch_peer.cpp" -o "$1/libcistern_torch_peer.so" \
    -L"$torch/lib" -Wl,--no-as-needed -ltorch_cuda -ltorch_cpu -lc10_cuda -lc10 -Wl,-rpath,"$torch/lib" >&2 || return 1
  echo "$version"
}

# run_beside PEER RUN POLICY: the workloads beside a peer; the figures are named after RUN.
run_beside() {
  local peer=$1 run=$2 library
  local -x CISTERN_BENCH_PEER=$peer CISTERN_BENCH_POLICY=$3 GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384
  # The C++ library that PyTorch needs may be newer than the one that came with the binaries.
  if [[ $peer == torch ]]; then
    library=$(c++ -print-file-name=libstdc++.so.6)
    local -x LD_PRELOAD=$library
  fi
  if ! time_benchmarks '^(warm_pair|mixed_sizes|trace_replay|two_threads)' "$run.json" ||
    ! CISTERN_BENCH_DEVICE=cuda time_benchmarks '^recorded_turn' "$run.recorded.json"; then
    echo "./dev gpu: the hot path could not be timed beside $peer:" >&2
    tail -n 20 "$peers/log" >&2
    rm -f "$peers/1.$run".*json  # what is cut off is no figure
    return 1
  fi
}

# time_benchmarks REGEX FILE
time_benchmarks() {
  "$build/bench/cistern_bench" --benchmark_filter="$1" --benchmark_out="$peers/1.$2" --benchmark_out_format=json \
    >"$peers/log" 2>&1
}

# device_peers: prints what was measured beside each that is there.
device_peers() {
  local peers=$scratch/peers traces version
  rm -rf "$peers"
  mkdir -p "$peers"
  traces=$(real_traces | head -n 1)
  if [[ -n $traces ]]; then
    CISTERN_BENCH_TRACES=$(dirname "$traces")
    export CISTERN_BENCH_TRACES
  fi
  echo "Nanoseconds: of a pair, of a free and an allocation, of an operation of a trace. cistern's device here keeps"
  echo "accounts only, but for \`recorded_turn\`, where it is the real one: allocate, record_stream, free, reuse, the driver's"
  echo "calls and all, beside the plain pair. The others' is the real one throughout; nothing runs on it, and warm requests ask it for nothing."
  echo
  if version=$(make_torch_peer "$build/bench" 2>"$peers/compiler"); then
    echo "- PyTorch: $version"
    run_beside torch torch classic
    run_beside torch torch_paged paged
  else
    echo "- PyTorch: none that a peer could be made of"
    cat "$peers/compiler" >&2
  fi
  run_beside driver_pool driver_pool classic
  run_beside tcmalloc tcmalloc classic
  echo
  "$root/scripts/device_peers.py" "$peers"
}
