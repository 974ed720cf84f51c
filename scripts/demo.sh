#!/usr/bin/env bash
# ./dev demo: the main job, from a clean clone.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"
# shellcheck source=scripts/device.sh
. "$root/scripts/device.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'USAGE'
usage: ./dev demo [DEMO ARGUMENTS...]
Builds the demo and runs it: a small transformer learns a text, with all its tensors in
cistern's memory on the simulated device. Leaves demo-snapshot.json and demo.trace in the
root; where there is a GPU, replays demo.trace on it too.
USAGE
  exit 0
fi

compile_quietly release cistern_demo tools/cistern
cd "$root"
build/release/examples/demo/cistern_demo "$@"
echo
if has_gpu; then
  echo "The same allocations on this machine's GPU:"
  CISTERN_DEVICE=cuda build/release/tools/cistern replay demo.trace
else
  echo "No GPU here: replaying demo.trace on a real device was left out."
fi
