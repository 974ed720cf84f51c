# What a run of ctest's ran, case by case. To be sourced.
# shellcheck shell=bash

# What ran of preset $1 by its JUnit file $2: a line of how many cases, how many of them failed and how many were
# skipped, and then a line for each that failed. Of several cases in one process (cistern_add_cases) those count that
# began; a process that fails although all of its cases passed counts as one more, which failed.
cases_of() {
  awk -v preset="$1" '
    function fail(what) { ++failed; names = names preset ": " what "\n" }
    function end() {
      if (!together) return
      if (running != "") fail(test ": ended in " running)
      if (fails && failed == failed_before) { ++cases; fail(test ": failed outside its cases") }
    }
    /<testcase / {
      split($0, quoted, "\"")
      test = quoted[2]
      fails = / status="fail"/
      together = test ~ /[0-9]+_of_[0-9]+$/
      running = ""
      failed_before = failed
      if (together) {
        fails = / status="(fail|notrun)"/
      } else {
        ++cases
        if (fails) fail(test)
        else if (/ status="(notrun|disabled)"/) ++skipped
      }
    }
    !together { next }
    /\[ RUN      \] / { ++cases; running = $NF }
    /\[       OK \] .* ms\)$/ { running = "" }
    /\[  SKIPPED \] .* ms\)$/ { running = ""; ++skipped }
    /\[  FAILED  \] .* ms\)$/ { fail(test ": " running); running = "" }
    /<\/testcase>/ { end(); together = 0 }
    END { printf "%d %d %d\n%s", cases, failed, skipped, names }' "$2"
}
