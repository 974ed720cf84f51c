#pragma once

// Symbols: what return addresses of this process mean.

#include <cistern/snapshot.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace cistern {

// Names, files and lines of code, from the files that the process runs: their symbol tables, and
// their DWARF line tables or those of the separate files that a distribution ships. Calls that were
// inlined show as their caller. What is not known stays empty.
struct Symbols {
  std::map<std::uint64_t, FrameInfo> frames;  // by return address
  std::vector<ModuleInfo> modules;            // what FrameInfo::module names
};

// For distinct addresses, in any order. Reads files: milliseconds, or more with large tables. What
// cannot be read is left out. Throws std::bad_alloc. No lock is held meanwhile but the loader's, briefly.
[[nodiscard]] Symbols symbolize(std::span<const std::uintptr_t> addresses);

}  // namespace cistern
