#!/usr/bin/env bash
# ./dev format: clang-format over our C++ sources.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/packages.sh
. "$root/scripts/packages.sh"

how=(-i)
case ${1:-} in
  -h | --help)
    echo "usage: ./dev format [--check]"
    echo "Formats every C++ source by .clang-format; with --check, only says what differs (exit status 1)."
    exit 0
    ;;
  --check) how=(--dry-run --Werror) ;;
  "") ;;
  *)
    echo "./dev format: unknown argument '$1' (it takes --check)" >&2
    exit 2
    ;;
esac

require_packages clang-format
cd "$root"
# New files too, but nothing that git ignores; what is deleted but not committed is skipped.
sources=()
while IFS= read -r -d '' file; do
  if [[ -e $file ]]; then sources+=("$file"); fi
done < <(git ls-files -z --cached --others --exclude-standard -- '*.h' '*.c' '*.cpp')
clang-format "${how[@]}" "${sources[@]}"
