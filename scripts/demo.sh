#!/usr/bin/env bash
# ./dev demo: the main job, from a clean clone.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"
# shellcheck source=scripts/device.sh
. "$root/scripts/device.sh"

program=$root/build/release/examples/demo/cistern_demo
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'USAGE'
usage: ./dev demo [DEMO ARGUMENTS...]
Builds the demo, quietly, and runs it: a small transformer learns a text, with all its tensors
in cistern's memory on the simulated device. Leaves demo-snapshot.json and demo.trace in the
current folder, or in that of --output; where there is a GPU, replays demo.trace on it too.
The demo's own help follows.

USAGE
  compile_quietly release cistern_demo
  exec "$program" --help
fi

# As the demo reads its arguments: each option has a value, the last --output counts.
output=.
previous=
for argument in "$@"; do
  if [[ $previous == --output ]]; then
    output=$argument
    previous=
  elif [[ -n $previous ]]; then
    previous=
  else
    previous=$argument
  fi
done

compile_quietly release cistern_demo tools/cistern
"$program" "$@"
echo
if has_gpu; then
  echo "The same allocations on this machine's GPU:"
  CISTERN_DEVICE=cuda "$root/build/release/tools/cistern" replay "$output/demo.trace"
else
  echo "No GPU here: replaying demo.trace on a real device was left out."
fi
