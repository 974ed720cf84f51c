#pragma once

// A driver for placements that does what it is asked or refuses, and which block has which byte, kept naively.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "allocator/page_placement.h"

namespace cistern {

// Does everything, or refuses the call that is to be refused; knows what is created and mapped where.
struct ScriptedDriver final : PageDriver {
  std::optional<int> refused;  // counted down
  int calls = 0;
  std::map<Sectors, PageTable::Handle> mapped;
  std::map<PageTable::Handle, std::int32_t> created;

  bool next() {
    ++calls;
    return !refused || (*refused)-- != 0;
  }
  bool create(PageTable::Handle handle, std::int32_t pages) override {
    return next() && created.emplace(handle, pages).second;
  }
  bool map(PageTable::Handle handle, Sectors address) override {
    return created.contains(handle) && next() && mapped.emplace(address, handle).second;
  }
  bool allow(Sectors /*address*/, std::int64_t /*pages*/) override { return next(); }
  void release(PageTable::Handle handle) override { EXPECT_EQ(created.erase(handle), 1U); }
  void unmap(PageTable::Handle handle, Sectors address) override {
    EXPECT_EQ(mapped.at(address), handle);
    mapped.erase(address);
  }
};

// Which block has which byte of which handle, one entry a sector.
class NaiveBytes {
 public:
  explicit NaiveBytes(PageSize page) : page_(page) {}

  void arrive(const PageTable& table, const PagedBlock& block, int id) {
    for (Sectors at = block.address; at < block.address + block.sectors; ++at) {
      int& owner = owner_of(table, at);
      ASSERT_EQ(owner, kNobody) << "it shares a byte with block " << id;
      owner = id;
    }
    live_ += block.sectors;
  }
  void leave(const PageTable& table, const PagedBlock& block, int id) {
    for (Sectors at = block.address; at < block.address + block.sectors; ++at) {
      int& owner = owner_of(table, at);
      ASSERT_EQ(owner, id);
      owner = kNobody;
    }
    live_ -= block.sectors;
  }
  [[nodiscard]] Sectors live() const { return live_; }
  // Pages of handles that have a byte of a block.
  [[nodiscard]] std::int64_t pages_in_use() const {
    std::int64_t pages = 0;
    for (const auto& [handle, owners] : owners_)
      if (std::any_of(owners.begin(), owners.end(), [](int owner) { return owner != kNobody; }))
        pages += page_.whole(static_cast<Sectors>(owners.size()));
    return pages;
  }
  // Whether the bytes of nobody, with so many pages more, could serve the request at one address or another: within
  // a handle; or all free handles side by side, between the longest free end and the longest free beginning.
  [[nodiscard]] bool could_serve(const PageTable& table, Sectors sectors, std::int64_t more_pages) const {
    Sectors whole = page_.sectors(more_pages);
    table.for_each_handle([&](PageTable::Handle handle) {
      if (!owners_.contains(handle)) whole += table.sectors_of(handle);
    });
    Sectors best = 0;
    Sectors longest_beginning = 0;
    Sectors longest_ending = 0;
    for (const auto& [handle, owners] : owners_) {
      Sectors stretch = 0;
      for (const int owner : owners) best = std::max(best, stretch = owner == kNobody ? stretch + 1 : 0);
      const auto is_taken = [](int owner) { return owner != kNobody; };
      const Sectors beginning = std::find_if(owners.begin(), owners.end(), is_taken) - owners.begin();
      const Sectors ending = std::find_if(owners.rbegin(), owners.rend(), is_taken) - owners.rbegin();
      if (beginning == static_cast<Sectors>(owners.size())) {
        whole += beginning;
        continue;
      }
      longest_beginning = std::max(longest_beginning, beginning);
      longest_ending = std::max(longest_ending, ending);
    }
    return std::max(best, whole + longest_ending + longest_beginning) >= sectors;
  }

 private:
  static constexpr int kNobody = -1;

  int& owner_of(const PageTable& table, Sectors at) {
    const PageTable::Slot slot = table.slot_at(at);
    std::vector<int>& owners = owners_[slot.handle];
    owners.resize(static_cast<std::size_t>(table.sectors_of(slot.handle)), kNobody);
    return owners[static_cast<std::size_t>(page_.sectors(slot.page) + page_.offset(at))];
  }

  PageSize page_;
  std::map<PageTable::Handle, std::vector<int>> owners_;
  Sectors live_ = 0;
};

}  // namespace cistern
