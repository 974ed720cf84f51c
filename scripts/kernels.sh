#!/bin/sh
# Makes runtime/strided_kernels.inc, the PTX that is compiled into the library, by clang alone. `--check` says
# whether it is that of the source (same clang), and that ptxas, where there is one, takes it.
set -eu
cd "$(dirname "$0")/.."
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
clang++ -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_50 -std=c++20 -O2 -fno-exceptions -S \
  -Xclang -target-feature -Xclang +ptx64 -I. -o "$made/kernels.ptx" runtime/strided_kernels.cu
{
  echo '// Made by scripts/kernels.sh of strided_kernels.cu.'
  echo 'R"ptx('
  sed -e 's/[[:space:]]*\/\/.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$made/kernels.ptx"
  echo ')ptx"'
} > "$made/strided_kernels.inc"
if command -v ptxas > /dev/null; then
  for generation in sm_75 sm_90; do ptxas -arch="$generation" -o /dev/null "$made/kernels.ptx"; done
fi
if [ "${1:-}" = --check ]; then
  cmp "$made/strided_kernels.inc" runtime/strided_kernels.inc
else
  cp "$made/strided_kernels.inc" runtime/strided_kernels.inc
fi
