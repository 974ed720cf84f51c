# Building by preset, with CMake and Ninja. To be sourced.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/packages.sh
. "$root/scripts/packages.sh"

# configure PRESET: makes build/PRESET, once; Ninja configures again when a CMake file changes. It takes ccache where
# CMAKE_CXX_COMPILER_LAUNCHER says so, and not because it is there: with an empty cache a build takes twice as long.
configure() {
  local folder=$root/build/$1
  # A tree from before the sanitizers had clang: to tell CMake of another compiler loses what else it was told.
  if [[ $1 =~ ^(asan|tsan)$ && -e $folder/CMakeCache.txt ]] &&
    ! grep -q '^CMAKE_CXX_COMPILER:.*clang' "$folder/CMakeCache.txt"; then
    rm -rf "$folder"
  fi
  [[ -e $folder/build.ninja ]] && return 0
  (cd "$root" && cmake --preset "$1")
}

# compile PRESET [TARGET...]: configures and builds, everything without a target.
compile() {
  local preset=$1 packages=("${build_packages[@]}")
  shift
  [[ ! $preset =~ ^(asan|tsan)$ ]] || packages+=("${clang_packages[@]}")
  require_packages "${packages[@]}"
  mkdir -p "$root/build"
  (
    # One build at a time in a folder: Ninja does not see to that itself.
    if command -v flock >/dev/null; then flock 9; fi
    # Another clone's results in a cache serve too: paths are taken relative to the root.
    export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
    configure "$preset" && ninja -C "$root/build/$preset" -j "$(nproc)" "$@"
  ) 9>"$root/build/$preset.lock"
}

# compile_quietly PRESET TARGET...: nothing on standard output, and the log when it fails.
compile_quietly() {
  local log=$root/build/$1.log
  require_packages "${build_packages[@]}"  # what it installs is no secret of the log
  mkdir -p "$root/build"
  if [[ ! -e $root/build/$1/build.ninja ]]; then
    echo "./dev: building build/$1 for the first time (some minutes); progress is in build/$1.log" >&2
  fi
  if ! compile "$@" >"$log" 2>&1; then
    cat "$log" >&2
    echo "./dev: the build of build/$1 failed" >&2
    return 1
  fi
}
