#pragma once

// Where a snapshot's memory is, in the words of memory_report().
//
// Thread safety: values, and a function of its arguments.

#include <cistern/snapshot.h>

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

namespace cistern {

// Bytes; all but `reserved` add up to it.
struct SnapshotParts {
  std::int64_t reserved = 0;
  std::int64_t live = 0;      // asked for and in callers' hands
  std::int64_t rounding = 0;  // added to make those requests whole blocks
  std::int64_t pending = 0;   // freed, but work on other streams may still use it
  std::int64_t free_split = 0;
  std::int64_t free_whole = 0;
  std::int64_t free_private = 0;
  std::int64_t live_blocks = 0;
};

// Their names as programs read them, in the order of the report.
struct NamedPart {
  const char* name;
  std::int64_t SnapshotParts::*value;
};
inline constexpr std::array<NamedPart, 8> kSnapshotParts{{
    {"live_blocks", &SnapshotParts::live_blocks},
    {"live_bytes", &SnapshotParts::live},
    {"rounding_bytes", &SnapshotParts::rounding},
    {"pending_bytes", &SnapshotParts::pending},
    {"free_split_bytes", &SnapshotParts::free_split},
    {"free_whole_bytes", &SnapshotParts::free_whole},
    {"free_private_bytes", &SnapshotParts::free_private},
    {"reserved_bytes", &SnapshotParts::reserved},
}};

// Of one device, or of all: then at most the largest number there is.
[[nodiscard]] SnapshotParts parts_of(const Snapshot& snapshot, std::optional<std::uint64_t> device = {});

}  // namespace cistern
