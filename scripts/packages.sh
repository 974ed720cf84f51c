# Debian packages, installed when they are missing. To be sourced. The names are those of
# Debian 12 (bookworm); "a|b" is one package that has another name elsewhere.
# shellcheck shell=bash

# What each kind of build needs. Release builds configure the tests too (./dev gpu uses some).
# shellcheck disable=SC2034  # used by the scripts that source this
build_packages=(cmake ninja-build g++ libfmt-dev nlohmann-json3-dev libcli11-dev zlib1g-dev
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev python3 'pkgconf|pkg-config' binutils)
# The sanitizers, with what names places in their reports; and coverage.
# shellcheck disable=SC2034
clang_packages=(clang llvm 'libclang-rt-dev|libclang-rt-14-dev')
# shellcheck disable=SC2034
bench_packages=('libtcmalloc-minimal4|libtcmalloc-minimal4t64')
# The other peers of ./dev bench hot, and what counts instructions.
# shellcheck disable=SC2034
hot_packages=('libmimalloc2.0|libmimalloc3|libmimalloc2' libjemalloc2 valgrind)
# shellcheck disable=SC2034
lint_packages=(clang clang-tidy clang-format)
# shellcheck disable=SC2034
fuzz_packages=(cmake ninja-build "${clang_packages[@]}")

# known_name NAME|NAME...: the first that apt knows, or else the first.
known_name() {
  local names name
  IFS='|' read -r -a names <<<"$1"
  for name in "${names[@]}"; do
    if ((${#names[@]} == 1)) || apt-cache show "$name" >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
  echo "${names[0]}"
}

# require_packages PACKAGE...: installs those that are missing, and says which on standard error.
# Where there is no dpkg nothing is known, and CMake will name what it does not find.
require_packages() {
  command -v dpkg-query >/dev/null || return 0
  local installed missing=() package packages=()
  for package in "$@"; do packages+=("$(known_name "$package")"); done
  # An installed package's line starts with "ii"; unknown names make the status 1.
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${packages[@]}" 2>/dev/null) || true
  for package in "${packages[@]}"; do
    grep -q "^.i *$package\$" <<<"$installed" || missing+=("$package")
  done
  ((${#missing[@]} == 0)) && return 0

  local as_root=()
  if ((EUID != 0)) && command -v sudo >/dev/null; then as_root=(sudo); fi
  if ! command -v apt-get >/dev/null || { ((EUID != 0)) && ((${#as_root[@]} == 0)); }; then
    echo "./dev: these packages are missing and cannot be installed from here (it takes apt-get" \
      "and root or sudo): ${missing[*]}" >&2
    return 1
  fi
  echo "./dev: installing ${missing[*]}" >&2
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y
    --no-install-recommends "${missing[@]}")
  # Fresh machines have no package lists yet, or old ones.
  if ! "${install[@]}" >&2; then
    "${as_root[@]}" apt-get update >&2
    "${install[@]}" >&2
  fi
}
