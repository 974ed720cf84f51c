#!/usr/bin/env bash
# ./dev test: the tests as they are, then under the sanitizers.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"
# shellcheck source=scripts/cases.sh
. "$root/scripts/cases.sh"

usage() {
  cat <<'USAGE'
usage: ./dev test [--long] [--preset dev|asan|tsan]... [CTEST ARGUMENTS...]
Builds and runs the tests: optimised (dev), with AddressSanitizer and UBSan (asan), with
ThreadSanitizer (tsan). The last line sums all runs.

  --long        the full counts of random programs, replays and fault points; without it
                CISTERN_TEST_SCALE (a share of the full counts, here 0.1) cuts them; under the
                sanitizers random programs on one thread are a tenth of that
  --preset P    only this build; may be given again for another
  -R NAME, ...  anything else goes to ctest. Without that and --long, and under the sanitizers always, many cases share a
                process, which is called after its program: allocator.allocator_test.3_of_24
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
# By default ThreadSanitizer sleeps a second at the end of each process that had threads: its reports come without that.
# At the first one the process ends, so that it names the case, of several in one process.
export TSAN_OPTIONS="atexit_sleep_ms=0 halt_on_error=1 ${TSAN_OPTIONS:-}"

# Folders that a preset leaves out (CMakePresets.json): a sanitizer has nothing to say about them,
# or, for ThreadSanitizer, what they test works on one thread (docs/decisions/0035-*).
left_out() {
  sed -n 's/^CISTERN_TEST_FOLDERS_WITHOUT:[A-Z]*=//p' "$root/build/$1/CMakeCache.txt" | tr ';' ' '
}

# Cases share processes where all are run, but for --long, and where such a process is asked for: which tests ctest
# numbers, and so which failed, depends on that. Else they are by their own names (cistern_add_cases).
case ${ctest_arguments[*]} in
  '') [[ $scale == 1 ]] || ctest_arguments=(--build-config together --label-exclude '^case$') ;;
  *_of_* | *--rerun-failed*) ctest_arguments+=(--build-config together) ;;
esac

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
  ran_here=$(cases_of "$preset" "$junit")
  read -r cases failures skips <<<"$ran_here"
  # Of thousands of lines, the last ones are what is read first.
  ((failures == 0)) || names+=$(tail -n +2 <<<"$ran_here")$'\n'
  # A test that could not be started is no failure in that file, but it is one; and nothing run is no success: a
  # mistyped name must not look like one.
  if ((failures == 0 && (status != 0 || cases == 0))); then
    failures=1 cases=$((cases + 1))
    names+="$preset: $( ((status == 0)) && echo 'no case ran' || echo "ctest ended with $status")"$'\n'
  fi
  total=$((total + cases))
  failed=$((failed + failures))
  skipped=$((skipped + skips))
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
((failed == 0 && passed > 0))
