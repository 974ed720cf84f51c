#pragma once

// HostMappings: which parts of the virtual window the host has mapped at the moment.
//
// The host allows a process few mappings (vm.max_map_count, 65,530 by default), a device many.
// So a part is shown when somebody is to touch it, neighbours whose bytes are neighbours too are
// one mapping, and the ones touched least recently are hidden again when more than `most` are
// shown. What is held is never hidden. What is shown agrees with the driver's mappings at all
// times: whoever changes those hides the range first.
// With Backing::none nothing is ever mapped, and every call succeeds.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/simulated/host_pages.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cistern::simulated {

// A quarter of what the host allows: hidden parts between shown ones count as mappings too, and
// the rest of the process needs some.
[[nodiscard]] std::size_t host_mapping_budget();

class HostMappings {
 public:
  HostMappings(HostPages& pages, std::size_t most) : pages_(pages), most_(most) {}

  // Shows all of a range whose bytes begin at `place`. Parts of it may be shown already.
  // False if the host refuses even after idle ones were hidden: what is shown stays right.
  [[nodiscard]] bool show(std::uint64_t address, std::size_t bytes, FilePlace place, PageAccess access);
  // False, unchanged, if the host refuses.
  [[nodiscard]] bool hide(std::uint64_t address, std::size_t bytes);

  // Between hold and release a range stays shown. Both with the same range.
  void hold(std::uint64_t address, std::size_t bytes);
  void release(std::uint64_t address, std::size_t bytes) noexcept;
  [[nodiscard]] bool is_held(std::uint64_t address, std::size_t bytes) const;

  // Whether so many more can be shown without hiding any.
  [[nodiscard]] bool has_room_for(std::size_t mappings) const { return shown_.size() + mappings <= most_; }
  [[nodiscard]] std::size_t size() const noexcept { return shown_.size(); }

 private:
  struct Shown {
    std::size_t bytes = 0;
    FilePlace place;
    PageAccess access = PageAccess::none;
    std::uint64_t last_use = 0;
  };
  using Table = std::map<std::uint64_t, Shown>;
  struct Range {
    std::uint64_t address;
    std::size_t bytes;
  };

  [[nodiscard]] Table::iterator first_overlapping(std::uint64_t address);
  bool show_gap(std::uint64_t address, std::size_t bytes, FilePlace place, PageAccess access);
  void insert(std::uint64_t address, Shown shown);
  void use(Table::iterator shown);
  // Hides up to `count`, those used least recently first; how many it hid.
  std::size_t hide_idle(std::size_t count);
  // Takes the part of [address, address + bytes) that one entry has out of the table.
  void cut(Table::iterator shown, std::uint64_t address, std::size_t bytes);

  HostPages& pages_;
  std::size_t most_;
  Table shown_;
  std::map<std::uint64_t, std::uint64_t> by_use_;  // addresses by last use: each has its own
  std::uint64_t uses_ = 0;
  std::vector<Range> held_;
};

}  // namespace cistern::simulated
