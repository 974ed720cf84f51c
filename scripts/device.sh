# Whether there is a GPU. To be sourced.
# shellcheck shell=bash

# Asks the system, not the library: a library that does not find a GPU that is there must fail loudly.
has_gpu() {
  nvidia-smi -L 2>/dev/null | grep -q '^GPU' && return 0
  # A container may have the device and the driver, but not the tool.
  [[ -e /dev/nvidia0 ]] && { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q 'libcuda\.so\.1'
}
