#!/usr/bin/env bash
# ./dev cistern: builds what the cistern command needs and runs it.
set -euo pipefail
# shellcheck source=scripts/build.sh
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
  cat >&2 <<'USAGE'
usage: ./dev cistern ARGUMENTS...
Builds build/release/tools/cistern, quietly, and runs it with ARGUMENTS: standard output
carries the command's output alone. The command's own help follows.

USAGE
fi
compile_quietly release tools/cistern
exec "$root/build/release/tools/cistern" "$@"
