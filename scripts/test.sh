#!/usr/bin/env bash
# ./dev test: the tests as they are, then under the sanitizers.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

usage() {
  cat <<'USAGE'
usage: ./dev test [--long] [--preset dev|asan|tsan]... [CTEST ARGUMENTS...]
Builds and runs the tests: optimised (dev), with AddressSanitizer and UBSan (asan), with
ThreadSanitizer (tsan). The last line sums all runs.

  --long        the full counts of random programs, replays and fault points; without it
                CISTERN_TEST_SCALE (a share of the full counts, here 0.1) cuts them; under the
                sanitizers random programs on one thread are a tenth of that
  --preset P    only this build; may be given again for another
  -R NAME, ...  anything else goes to ctest
USAGE
}

# ThreadSanitizer's memory layout does not fit where the kernel spreads addresses over more
# bits than it was built for; without randomisation it always does.
if [[ -z ${CISTERN_ADDRESSES_FIXED:-} ]] && (($(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) > 28)) &&
  setarch "$(uname -m)" -R true 2>/dev/null; then
  CISTERN_ADDRESSES_FIXED=1 exec setarch "$(uname -m)" -R "$0" "$@"
fi

presets=()
scale=0.1
ctest_arguments=()
while (($# > 0)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --long) scale=1 ;;
    --preset)
      [[ ${2:-} =~ ^(dev|asan|tsan)$ ]] || {
        echo "./dev test: --preset takes dev, asan or tsan, not '${2:-}'" >&2
        exit 2
      }
      presets+=("$2")
      shift
      ;;
    *) ctest_arguments+=("$1") ;;
  esac
  shift
done
((${#presets[@]} > 0)) || presets=(dev asan tsan)
export CISTERN_TEST_SCALE=${CISTERN_TEST_SCALE:-$scale}
# By default ThreadSanitizer sleeps a second at the end of each process that had threads, and
# many cases are one: its reports come without that.
export TSAN_OPTIONS="atexit_sleep_ms=0 ${TSAN_OPTIONS:-}"

# Folders that a preset leaves out (CMakePresets.json): a sanitizer has nothing to say about them,
# or, for ThreadSanitizer, what they test works on one thread (docs/decisions/0035-*).
left_out() {
  sed -n 's/^CISTERN_TEST_FOLDERS_WITHOUT:[A-Z]*=//p' "$root/build/$1/CMakeCache.txt" | tr ';' ' '
}

# The number in an attribute of the JUnit file's first tag, or 0.
attribute() {
  local value
  value=$(sed -n "s/^[[:space:]]*$2=\"\([0-9]*\)\".*/\1/p" "$1" | head -n 1)
  echo "${value:-0}"
}

# By the JUnit file $1: how many more cases, failures and skipped cases there were than it counts, where one test of
# ctest's ran several (cistern_add_cases).
beside_counted() {
  awk '
    /<testcase / { together = / name="[^"]*[0-9]+_of_[0-9]+"/ }
    together && /\[==========\] Running [0-9]+ tests? from / { cases += $3 - 1 }
    together && /^\[  SKIPPED \] [0-9]+ tests?, listed below/ { skipped += $4 }
    together && /^ *[0-9]+ FAILED TESTS?$/ { failures += $1 - 1 }
    END { print cases + 0, failures + 0, skipped + 0 }' "$1"
}

# The cases of preset $1 that failed, a line each, by its JUnit file $2. Of several in one process those that it told
# of, and the one at which it ended.
failed_names() {
  awk -v preset="$1" '
    /<testcase / {
      split($0, quoted, "\"")
      test = quoted[2]
      fails = / status="fail"/
      together = test ~ /[0-9]+_of_[0-9]+$/
      running = ""
      if (fails && !together) print preset ": " test
    }
    !fails || !together { next }
    /^\[ RUN      \] / { running = $4 }
    /^\[       OK \] |^\[  SKIPPED \] / { running = "" }
    /^\[  FAILED  \] .* ms\)$/ { running = ""; print preset ": " test ": " $4 }
    /<\/testcase>/ && running != "" { print preset ": " test ": ended in " running }' "$2"
}

total=0 failed=0 skipped=0
ran="" names=""
for preset in "${presets[@]}"; do
  echo "== $preset: building"
  compile "$preset"
  without=$(left_out "$preset")
  echo "== $preset: testing at $CISTERN_TEST_SCALE of the full counts${without:+, all but $without}"
  junit=$root/build/$preset/tests.xml
  rm -f "$junit"
  status=0
  ctest --test-dir "$root/build/$preset" --output-on-failure --parallel "$(nproc)" \
    --output-junit "$junit" --test-output-size-passed 4194304 --test-output-size-failed 4194304 \
    "${ctest_arguments[@]}" || status=$?
  [[ -s $junit ]] || {
    echo "./dev test: ctest left no results for $preset" >&2
    exit 1
  }
  read -r more_cases more_failures more_skipped < <(beside_counted "$junit")
  cases=$(($(attribute "$junit" tests) + more_cases))
  total=$((total + cases))
  failures=$(($(attribute "$junit" failures) + more_failures))
  # A test that could not be started is no failure in that file, but it is one.
  ((status == 0 || failures > 0)) || failures=1
  failed=$((failed + failures))
  # Of thousands of lines, the last ones are what is read first.
  ((failures == 0)) || names+=$(failed_names "$preset" "$junit")$'\n'
  skipped=$((skipped + $(attribute "$junit" skipped) + $(attribute "$junit" disabled) + more_skipped))
  ran+="${ran:+, }$preset $cases${without:+ (all but $without)}"
done

echo
echo "Ran at CISTERN_TEST_SCALE=$CISTERN_TEST_SCALE: $ran"
[[ -z $names ]] || printf 'Failed:\n%s' "$names"
passed=$((total - failed - skipped))
if ((skipped > 0)); then
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
# Nothing run is no success: a mistyped name must not look like one.
((failed == 0 && passed > 0))
