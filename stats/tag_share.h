#pragma once

// TagShare: what one stream counts by tag without the heap's lock, until the heap's TagLedger takes it in.
//
// As with the peaks of all memory (BlockLedger), a tag's peak costs nothing until it moves: a stream is lent a part of
// what may still come below it, and as long as none exceeds its part, no order of what they saw comes above the peak.
// Parts are lent for a term, which the ledger ends where a peak may move. A stream has parts of a few tags at a time:
// one more takes the place of the oldest. Not thread-safe: guarded by the stream's lock, which who has the heap's
// holds, too. O(kMostTags).

#include "stats/tags.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace cistern {

class TagShare {
 public:
  static constexpr std::size_t kMostTags = 8;

  struct Amount {
    std::int64_t blocks = 0;
    std::int64_t bytes = 0;

    void add(const Amount& other, std::int64_t times = 1) noexcept {
      blocks += times * other.blocks;
      bytes += times * other.bytes;
    }
  };
  class Part {
   public:
    [[nodiscard]] bool has_room_for(std::int64_t bytes) const noexcept {
      return room_.blocks > 0 && room_.bytes >= bytes;
    }
    // A block was handed out. Requires: there is room for it.
    void count_allocation(std::int64_t bytes) noexcept {
      came_.add({1, bytes});
      room_.add({1, bytes}, -1);
    }
    void count_free(std::int64_t bytes) noexcept {
      went_.add({1, bytes});
      room_.add({1, bytes});
    }

   private:
    friend class TagLedger;
    friend class TagShare;
    TagId tag_ = kUntagged;
    std::uint64_t term_ = 0;  // 0: none
    Amount room_;             // that may still come
    Amount came_;             // since it was taken in
    Amount went_;
  };

  // Null: who has the heap's lock counts the tag's blocks.
  [[nodiscard]] Part* find(TagId tag, std::uint64_t term) noexcept {
    if (parts_ == nullptr) return nullptr;
    for (Part& part : *parts_)
      if (part.tag_ == tag && part.term_ == term) return &part;
    return nullptr;
  }

 private:
  friend class TagLedger;
  using Parts = std::array<Part, kMostTags>;

  // The place for one more, which another one may have; null: no host memory.
  [[nodiscard]] Part* next_place() noexcept {
    if (parts_ == nullptr) parts_.reset(new (std::nothrow) Parts());
    if (parts_ == nullptr) return nullptr;
    Part& place = (*parts_)[oldest_];
    oldest_ = (oldest_ + 1) % kMostTags;
    return &place;
  }
  template <class Visit>
  void for_each(Visit&& visit) noexcept {
    if (parts_ == nullptr) return;
    for (Part& part : *parts_) visit(part);
  }

  std::unique_ptr<Parts> parts_;  // once it has had any
  std::size_t oldest_ = 0;
};

}  // namespace cistern
