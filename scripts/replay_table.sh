# Replays as a Markdown table. To be sourced; needs `root`, and `scratch`, a folder for
# traces and figures in between.
# shellcheck shell=bash disable=SC2154

# The real traces, where they are: CISTERN_SHARED, or a folder `shared` in or beside the checkout.
real_traces() {
  local folder
  for folder in "${CISTERN_SHARED:-}" "$root/shared" "$root/../shared"; do
    if [[ -n $folder && -d $folder/traces ]]; then
      find "$folder/traces" -name '*.trace.gz' | sort
      return
    fi
  done
}

# workload_traces COMMAND: all generated ones, made anew with the default seed.
workload_traces() {
  local folder=$scratch/workloads name
  mkdir -p "$folder"
  "$1" workload | while read -r name _; do
    "$1" workload "$name" -o "$folder/$name.trace"
    echo "$folder/$name.trace"
  done
}

# markdown_rows: replay's JSON lines on standard input as rows.
markdown_rows() {
  awk '
    function field(name,    rest) {
      rest = $0
      if (!sub(".*\"" name "\":", "", rest)) return ""
      sub(/^"/, "", rest)
      sub(/[",}].*/, "", rest)
      return rest
    }
    function mib(bytes) { return sprintf("%.1f", bytes / 1048576) }
    {
      printf "| %s | %d | %s | %s | %.4f | %d | %d | %.3f | %.1f | %d | %d |\n",
        field("trace"), field("ops"), mib(field("peak_live_bytes")), mib(field("peak_reserved_bytes")),
        field("peak_reserved_over_live"), field("repeat_driver_calls"), field("host_synchronizations"),
        field("modelled_driver_ms"), field("ns_per_op"), field("retries"), field("ooms")
    }'
}

# replay_table COMMAND POLICY FILE...: replays each and prints the table. A trace that runs out of
# memory is a row like the others; a file that cannot be replayed is an error.
replay_table() {
  local command=$1 policy=$2 file status
  shift 2
  echo "| trace | ops | peak live MiB | peak reserved MiB | ratio | repeat driver calls | host syncs | modelled driver ms | ns/op | retries | ooms |"
  echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
  for file in "$@"; do
    status=0
    "$command" replay --json --policy "$policy" "$file" >"$scratch/replay.json" || status=$?
    ((status <= 1)) || return "$status"
    markdown_rows <"$scratch/replay.json"
  done
}

# machine_lines: what was measured where, with what.
machine_lines() {
  local cpu
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  echo "- host: ${cpu:-$(uname -m)}, $(nproc) cores, $(uname -s) $(uname -r | cut -d. -f1-2)"
  if command -v git >/dev/null && git -C "$root" rev-parse HEAD >/dev/null 2>&1; then
    # Tables that were written before this one are no change of what is measured.
    local changed=""
    [[ -z $(git -C "$root" status --porcelain --untracked-files=no -- . ":(exclude)bench/results") ]] ||
      changed=", with changes"
    echo "- commit: $(git -C "$root" rev-parse --short HEAD)$changed"
  fi
}
