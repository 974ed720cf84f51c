#pragma once

// Scopes, tags and budgets: what happened between two moments, whose memory it is, and how much of
// it at most.
//
// Thread safety: scopes and budgets may be used and ended by any thread; one object is not to be
// moved or destroyed while another thread uses it. A TagScope belongs to the thread that made it.
// Units: bytes, of whole blocks as the allocator hands them out.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/options.h>
#include <cistern/stats.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace cistern {

class CachingAllocator;

// Statistics of its own from the moment it is made until it is stopped: any number may be open at
// once, nested or overlapping, and no reset disturbs them. An open scope costs an allocation
// nothing, however many there are. Opening, reading and stopping take the device's lock; reading and
// stopping take O(scopes that were opened later and are still open). None touches a stream.
class CISTERN_EXPORT PeakScope {
 public:
  // Of one device's process-wide heap. Throws InvalidArgument, DriverError.
  explicit PeakScope(Device device = {});
  // Of an allocator of one's own. What it saw can be read after the allocator has ended, too.
  explicit PeakScope(CachingAllocator& allocator, int device = 0);
  // Of every device, each with figures of its own; devices that are used only later, too.
  [[nodiscard]] static PeakScope of_all_devices();
  [[nodiscard]] static PeakScope of_all_devices(CachingAllocator& allocator);
  ~PeakScope();
  PeakScope(PeakScope&&) noexcept;
  PeakScope& operator=(PeakScope&&) noexcept;

  // What happened while it was open, until now or until it was stopped:
  //   current                as the device's
  //   peak                   the highest since the scope was opened
  //   allocated, freed       within the scope, in blocks and in bytes; so do the counters
  // so that `current - allocated + freed` is what there was when it was opened. `device`: of those
  // that it is of; none means its only one, or the current one. Throws InvalidArgument for another,
  // and for a scope that was moved from; NotSupported in a forked child while it is open.
  [[nodiscard]] MemoryStats stats(Device device = {}) const;
  // Of those: the highest allocated_bytes within the scope, and what was allocated at its start.
  [[nodiscard]] std::int64_t peak_bytes(Device device = {}) const;
  [[nodiscard]] std::int64_t start_bytes(Device device = {}) const;

  // Ends it: from now on its figures stay as they are. Nothing the second time.
  void stop() noexcept;
  [[nodiscard]] bool is_open() const noexcept;

  struct State;

 private:
  explicit PeakScope(std::unique_ptr<State> state) noexcept;
  [[nodiscard]] State& state() const;
  std::unique_ptr<State> state_;
};

// A name for what memory is for, of the whole process; the same text is the same tag. Names are
// kept for good: there can be 65,535, so name kinds of use, not single ones.
class CISTERN_EXPORT Tag {
 public:
  // No tag.
  Tag() noexcept = default;
  // Throws InvalidArgument for a name that is empty, longer than 255 bytes, no UTF-8 or with control
  // characters, and for one name too many.
  explicit Tag(std::string_view name);
  [[nodiscard]] const std::string& name() const;  // empty: no tag
  [[nodiscard]] std::uint16_t id() const noexcept { return id_; }
  // The innermost of the calling thread.
  [[nodiscard]] static Tag current() noexcept;

  friend bool operator==(Tag a, Tag b) noexcept { return a.id_ == b.id_; }
  friend bool operator!=(Tag a, Tag b) noexcept { return a.id_ != b.id_; }

 private:
  std::uint16_t id_ = 0;
};

// While it lives, blocks that this thread allocates, on whatever device, carry the tag, if it is the
// innermost. A block keeps its tag until it is freed, by whomever; see tag_stats. `Tag{}` makes
// an island without one. Costs a look-up of the name, or nothing when a Tag is kept; and from the first tag of a device
// on each of its requests counts by tag, tagged or not, for some 50 to 150 ns more (docs/statistics.md).
// To be destroyed by the thread that made it, in any order.
class CISTERN_EXPORT TagScope {
 public:
  explicit TagScope(std::string_view name) : TagScope(Tag(name)) {}
  explicit TagScope(Tag tag) noexcept;
  ~TagScope();
  TagScope(const TagScope&) = delete;
  TagScope& operator=(const TagScope&) = delete;

 private:
  Tag tag_;
  TagScope* outer_;
  TagScope* inner_ = nullptr;
};

// A soft limit was passed: from at most `soft_bytes` to more by one allocation.
struct BudgetCrossing {
  std::string tag;  // empty: of the whole device
  int device = 0;
  std::size_t soft_bytes = 0;
  std::size_t live_bytes = 0;       // now
  std::size_t allocated_bytes = 0;  // by the block that passed it
};

struct BudgetOptions {
  std::string tag = {};  // whose blocks count; empty: all of the device's, tagged or not
  Device device = {};    // resolved when the budget is made
  // Passed from below, `on_soft` is called once, and again after it was left downwards in between.
  std::size_t soft_bytes = kUnlimited;
  // No allocation may leave more than this live. At least soft_bytes, where that is given.
  std::size_t hard_bytes = kUnlimited;
  // Called by the allocation that passed soft_bytes, on its thread, with no lock held: it may
  // allocate and free. What it throws is ignored. A call may still be running when the budget ends.
  std::function<void(const BudgetCrossing&)> on_soft = {};
};

// A limit on live bytes, of blocks in callers' hands, in force while the object lives. What passes a
// hard limit is refused with an OutOfMemoryError of cause `limit` that names tag, budget, live bytes
// and request (OutOfMemoryReport::budget); nothing is counted or released then, and no observer is
// called. Where several budgets apply, each is judged. Without any, an allocation pays nothing.
class CISTERN_EXPORT Budget {
 public:
  // Of the process-wide heap. Throws InvalidArgument for a tag that Tag refuses, without any limit,
  // for a soft limit without a callback or the other way round, and for a hard limit below the soft.
  explicit Budget(const BudgetOptions& options);
  // Of an allocator of one's own, whose end ends the budget too; "the current device" is device 0
  // where the allocator has a driver of its own.
  explicit Budget(CachingAllocator& allocator, const BudgetOptions& options);
  ~Budget();
  Budget(Budget&&) noexcept;
  Budget& operator=(Budget&&) noexcept;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace cistern
