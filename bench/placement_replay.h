#pragma once

// A trace through the placement of paged memory, with a driver that counts.
//
// Modelled: where each byte is, calls, streams and late events. Not modelled: the driver's own time and refusals, other
// processes, the heap around it (its locks, blocks and statistics).
// Every placement is checked: no two live blocks share a byte of a handle.
// Thread safety: not thread-safe.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "allocator/page_placement.h"
#include "tools/trace.h"

namespace cistern {

struct DriverCounts {
  std::int64_t created = 0;
  std::int64_t mapped = 0;
  std::int64_t allowed = 0;
  [[nodiscard]] std::int64_t calls() const { return created + mapped + allowed; }
};

// Which live block has which bytes of which handle. Throws std::logic_error for a byte that two have.
class ByteOracle {
 public:
  void arrive(const PageTable& table, Sectors address, Sectors sectors);
  void leave(const PageTable& table, Sectors address, Sectors sectors);

 private:
  using Parts = std::map<Sectors, Sectors>;  // of a handle's page: begin to end
  [[nodiscard]] Parts& parts_of(const PageTable& table, Sectors address);

  std::map<PageTable::Handle, std::vector<Parts>> handles_;
};

class PlacementReplay {
 public:
  struct Settings {
    std::int64_t page_limit = PagePlacement::kNoLimit;
    std::uint64_t event_lag = 0;  // operations after a free until the events of other streams are done
    bool checks_bytes = true;
  };

  PlacementReplay(const Trace& trace, const Settings& settings);

  // Passes the operations and frees what they left live. Returns false where the limit refused a request.
  [[nodiscard]] bool pass(std::span<const TraceOperation> operations);

  [[nodiscard]] const DriverCounts& driver() const { return driver_.counts; }
  [[nodiscard]] const PagePlacement& placement() const { return placement_; }
  // Placements that took another stream's free bytes, or pending ones.
  [[nodiscard]] std::int64_t stream_waits() const { return waits_; }

 private:
  struct CountingDriver final : PageDriver {
    DriverCounts counts;
    bool create(PageTable::Handle /*handle*/, std::int32_t /*pages*/) override { return ++counts.created > 0; }
    bool map(PageTable::Handle /*handle*/, Sectors /*address*/) override { return ++counts.mapped > 0; }
    bool allow(Sectors /*address*/, std::int64_t /*pages*/) override { return ++counts.allowed > 0; }
    void release(PageTable::Handle /*handle*/) override {}
    void unmap(PageTable::Handle /*handle*/, Sectors /*address*/) override {}
  };
  struct Live {
    PagedBlock block;
    bool is_used_elsewhere = false;
  };
  struct Pending {
    std::uint64_t due;
    PagedBlock block;
  };

  [[nodiscard]] bool allocate(const TraceOperation& operation);
  void hand_out(const TraceOperation& operation, const PagedBlock& block);
  void record(const TraceOperation& operation);
  void free(std::uint32_t id);
  void settle_due(bool all);
  [[nodiscard]] StreamNumber number_of(std::uint32_t stream) const { return numbers_.at(stream); }

  Settings settings_;
  PagePlacement placement_;
  CountingDriver driver_;
  ByteOracle oracle_;
  std::map<std::uint32_t, StreamNumber> numbers_;  // in the order in which streams appear
  std::vector<std::optional<Live>> live_;
  std::deque<Pending> pending_;
  std::uint64_t now_ = 0;
  std::int64_t waits_ = 0;
};

}  // namespace cistern
