#!/usr/bin/env bash
# ./dev lint: what reads the sources without running them.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'USAGE'
usage: ./dev lint [FILE.cpp...]
clang-format (only checks), clang-tidy by .clang-tidy over all sources that are compiled or
over FILEs, and shellcheck where it is installed. Exit status 1 if any of them objects.
USAGE
  exit 0
fi

require_packages "${build_packages[@]}" "${lint_packages[@]}"
cd "$root"
status=0

echo "== clang-format"
"$root/scripts/format.sh" --check || status=1

echo "== clang-tidy"
mkdir -p "$root/build"
configure dev >"$root/build/lint.log" 2>&1 || {
  cat "$root/build/lint.log" >&2
  exit 1
}
if (($# > 0)); then
  printf '%s\0' "$@"
else
  # Tests are left out: what their macros expand to is not ours.
  git ls-files -z -- 'runtime/*.cpp' 'stats/*.cpp' 'allocator/*.cpp' 'tools/*.cpp' 'bench/*.cpp' 'examples/*.cpp'
fi |
  xargs -0 -r -n 4 -P "$(nproc)" clang-tidy -p build/dev --quiet --extra-arg=-Wno-unknown-warning-option || status=1

echo "== shellcheck"
if command -v shellcheck >/dev/null; then
  shellcheck -x dev .ci/run scripts/*.sh tests/fuzz/run tests/mutants/run tests/scripts/* || status=1
else
  echo "shellcheck is not installed: left out"
fi
exit "$status"
