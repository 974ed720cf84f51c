#!/usr/bin/env bash
# ./dev coverage: what of the library and the command the tests reach.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

usage() {
  cat <<'USAGE'
usage: ./dev coverage [--long] [CTEST ARGUMENTS...]
Builds the tests with clang's coverage counters into build/coverage, runs them, and prints
the lines and branches that they reach, a folder a row. The golden tests are among them
where the recorded statistics are. A file's own lines: llvm-cov, as the last line says.

  --long        the full counts of random programs and replays; without it
                CISTERN_TEST_SCALE (a share of the full counts, here 0.1) cuts them
  -R NAME, ...  anything else goes to ctest
Exit status 1 if a test failed.
USAGE
}

scale=0.1
ctest_arguments=()
while (($# > 0)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --long) scale=1 ;;
    *) ctest_arguments+=("$1") ;;
  esac
  shift
done
export CISTERN_TEST_SCALE=${CISTERN_TEST_SCALE:-$scale}

folders="simulated;runtime;options;stats;allocator;model;faults;races;golden;tools;command"
require_packages "${build_packages[@]}" "${clang_packages[@]}"
build=$root/build/coverage
mkdir -p "$build"
echo "== building build/coverage"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 \
  -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping" \
  -DCISTERN_BUILD_BENCH=OFF -DCISTERN_BUILD_EXAMPLES=OFF -DCISTERN_TEST_FOLDERS="$folders" >"$build/log" 2>&1 || {
  cat "$build/log" >&2
  exit 1
}
# Programs that run while building, to list their tests, leave counts as well: removed below.
LLVM_PROFILE_FILE=$build/profiles/building-%4m.profraw ninja -C "$build" -j "$(nproc)"

echo "== testing at $CISTERN_TEST_SCALE of the full counts"
rm -rf "$build/profiles"
mkdir -p "$build/profiles"
status=0
# A few files a program, into which all its processes merge their counts.
LLVM_PROFILE_FILE=$build/profiles/%4m.profraw ctest --test-dir "$build" --parallel "$(nproc)" \
  --output-on-failure "${ctest_arguments[@]}" >"$build/tests.log" 2>&1 || status=1
grep -E '^[0-9]+% tests passed|^Total Test|\*\*\*' "$build/tests.log" || true

llvm-profdata merge -sparse "$build"/profiles/*.profraw -o "$build/tests.profdata"
programs=()
while IFS= read -r -d '' program; do
  # The first stands alone: a file without an option is llvm-cov's program, later ones are sources.
  if ((${#programs[@]} > 0)); then programs+=(-object); fi
  programs+=("$program")
done < <(find "$build/tests" "$build/tools" -type f -executable ! -name '*.so*' ! -name '*.a' -print0 | sort -z)
sources=("$root/include" "$root/runtime" "$root/stats" "$root/allocator" "$root/tools")
llvm-cov report -instr-profile "$build/tests.profdata" "${programs[@]}" "${sources[@]}" >"$build/files"

echo
# llvm-cov's columns: the file, then three for regions, functions, lines and branches each.
awk '
  function share(missed, all) { return all == 0 ? "-" : sprintf("%.1f %%", 100 * (all - missed) / all) }
  function row(name) {
    printf "| %s | %d | %s | %d | %s |\n", name, lines[name], share(missed_lines[name], lines[name]),
      branches[name], share(missed_branches[name], branches[name])
  }
  BEGIN {
    print "| folder | lines | reached | branches | reached |"
    print "| --- | ---: | ---: | ---: | ---: |"
    names = split("include runtime stats allocator tools", folders, " ")
  }
  NF == 13 && $2 ~ /^[0-9]+$/ {
    name = "all"
    if ($1 != "TOTAL") {
      # What the files have in common is cut off, or nothing is.
      for (i = 1; i <= names; ++i) if ($1 ~ ("(^|/)" folders[i] "/")) { name = folders[i]; break }
    }
    lines[name] += $8
    missed_lines[name] += $9
    branches[name] += $11
    missed_branches[name] += $12
  }
  END {
    for (i = 1; i <= names; ++i) row(folders[i])
    row("all")
  }' "$build/files"
echo
echo "file by file: build/coverage/files; line by line: llvm-cov show -instr-profile build/coverage/tests.profdata PROGRAM FILE"
exit "$status"
