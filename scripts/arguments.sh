# Checks of what a subcommand was given: each says what it expected, and ends the script. To be sourced.
# shellcheck shell=bash

# require_result_name COMMAND VALUE: the value of --name, of a file in bench/results/.
require_result_name() {
  [[ $2 =~ ^[A-Za-z0-9._-]+$ ]] && return
  echo "$1: --name takes letters, digits, '.', '_' and '-', not '$2'" >&2
  exit 2
}

# refuse_argument COMMAND ARGUMENT
refuse_argument() {
  echo "$1: unknown argument '$2' (see --help)" >&2
  exit 2
}
