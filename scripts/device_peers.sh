# The hot path beside allocators that need a device. To be sourced; needs `root`, `scratch` and `build`.
# shellcheck shell=bash disable=SC2154

# torch_version: PyTorch's that python3 has, with CUDA and a compiler for it; else nothing.
torch_version() {
  command -v c++ >/dev/null || return 0
  python3 -c 'import torch; print(torch.__version__ if torch.cuda.is_available() else "")' 2>/dev/null || true
}

# make_torch_peer FOLDER: compiles PyTorch's allocator as a peer into FOLDER.
make_torch_peer() {
  local torch include
  torch=$(python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)')
  # Of the Toolkit that is installed, or of the one that came with PyTorch.
  include=$(find -L "${CUDA_HOME:-/usr/local/cuda}/include" "$torch/../nvidia" -name cuda_runtime_api.h 2>/dev/null | head -n 1)
  c++ -std=c++20 -O2 -fPIC -shared -isystem "$torch/include" -isystem "$(dirname "${include:-/}")" \
    "$root/bench/torch_peer.cpp" -o "$1/libcistern_torch_peer.so" \
    -L"$torch/lib" -Wl,--no-as-needed -ltorch_cuda -ltorch_cpu -lc10_cuda -lc10 -Wl,-rpath,"$torch/lib" >&2
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
  if ! time_benchmarks '^(warm_pair|mixed_sizes|changing_steps|trace_replay|two_threads)' "$run.json" ||
    ! CISTERN_BENCH_DEVICE=cuda time_benchmarks '^recorded_turn' "$run.recorded.json"; then
    echo "- The hot path could not be timed beside $run."
    tail -n 20 "$peers/log" >&2
    rm -f "$peers/1.$run".*json  # what is cut off is no figure
    return 1
  fi
}

# time_benchmarks REGEX FILE
time_benchmarks() {
  timeout 300 "$build/bench/cistern_bench" --benchmark_filter="$1" --benchmark_out="$peers/1.$2" --benchmark_out_format=json \
    >"$peers/log" 2>&1
}

# device_peers: prints what was measured beside each that is there. Fails where one that is there could not be timed.
device_peers() {
  local peers=$scratch/peers traces version failed=0
  rm -rf "$peers"
  mkdir -p "$peers"
  traces=$(real_traces | sed -n 1p)
  if [[ -n $traces ]]; then
    CISTERN_BENCH_TRACES=$(dirname "$traces")
    export CISTERN_BENCH_TRACES
  fi
  echo "Nanoseconds: of a pair, of a free and an allocation, of an operation of a trace. cistern's device keeps accounts"
  echo "only, but in the last two rows, where it is the real one: allocate, record_stream, free, reuse, the driver's"
  echo "calls and all, and the plain pair. PyTorch and the driver's pool have the real one throughout, on which nothing runs; of"
  echo "the traces peers get the requests and frees, on one stream. PyTorch asks the driver nothing once it is warm."
  echo
  version=$(torch_version)
  if [[ -z $version ]]; then
    echo "- PyTorch: none that a peer could be made of"
  elif make_torch_peer "$build/bench"; then
    echo "- PyTorch: $version"
    run_beside torch torch classic || failed=1
    run_beside torch torch_paged paged || failed=1
  else
    echo "- PyTorch: $version, which could not be compiled against"
    failed=1
  fi
  run_beside driver_pool driver_pool classic || failed=1
  run_beside tcmalloc tcmalloc classic || failed=1
  echo
  "$root/scripts/device_peers.py" "$peers" || failed=1
  return "$failed"
}
