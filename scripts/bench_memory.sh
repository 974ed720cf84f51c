#!/usr/bin/env bash
# ./dev bench memory: what each policy reserves for each trace, against its goals and beside other allocators.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"
# shellcheck source=scripts/replay_table.sh
. "$root/scripts/replay_table.sh"
# shellcheck source=scripts/arguments.sh
. "$root/scripts/arguments.sh"

usage() {
  cat <<'USAGE'
usage: ./dev bench memory [--name NAME] [--command FILE]
Replays every real trace under each policy over the simulated device: unlimited, with a thousandth of the sizes
perturbed, and on the least device that will do. Writes bench/results/NAME.md and NAME.json (by default memory): the goals of
`paged` with what was measured, then the policies beside the published figures of other allocators, which are read
from reference/peers.md beside the traces if it is there. docs/paged-policy.md has the goals' meaning.

  --command FILE   this cistern command instead of one built now
USAGE
}

name=memory
command=
while (($# > 0)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --name)
      require_result_name "./dev bench memory" "${2:-}"
      name=$2
      shift
      ;;
    --command)
      [[ -x ${2:-} ]] || {
        echo "./dev bench memory: --command takes a program, not '${2:-}'" >&2
        exit 2
      }
      command=$2
      shift
      ;;
    *) refuse_argument "./dev bench memory" "$1" ;;
  esac
  shift
done

require_packages "${bench_packages[@]}" python3
if [[ -z $command ]]; then
  compile_quietly release tools/cistern
  command=$root/build/release/tools/cistern
fi
export CISTERN_DEVICE=simulated

mapfile -t traces < <(real_traces)
((${#traces[@]} > 0)) || {
  echo "./dev bench memory: there is no folder of real traces: see docs/benchmarks.md" >&2
  exit 1
}
scratch=$root/build/bench/memory
rm -rf "$scratch"
mkdir -p "$scratch"

# A trace that runs out of memory is a row like the others.
measure() {
  local result=$1 status=0
  shift
  "$command" "$@" "${traces[@]}" >"$scratch/$result" || status=$?
  ((status <= 1)) || return "$status"
}

for policy in classic expandable paged direct; do
  echo "./dev bench memory: $policy" >&2
  measure "$policy.replay" replay --json --policy "$policy"
  measure "$policy.perturbed" replay --json --policy "$policy" --perturb 0.001
  measure "$policy.capacity" capacity --json --policy "$policy"
done
printf '%s\n' "${traces[@]}" >"$scratch/traces"
machine_lines >"$scratch/machine"
folder=$(dirname "${traces[0]}")
"$root/scripts/memory_table.py" "$scratch" "${folder%/traces}/reference/peers.md" "$root/bench/results/$name.md"
echo "written to bench/results/$name.md" >&2
