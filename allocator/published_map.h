#pragma once

// PublishedMap: from a number to an object, read by any thread without a lock while one changes it.
//
// An open-addressing table and a version. Who moves entries makes the version odd meanwhile, and a
// reader whose version was odd, or is another afterwards, knows nothing: it then asks under the lock of who
// writes. Tables that were outgrown stay for readers that are still there; each is half of the next.
// Thread safety: find may be called from any thread at any time; the rest by one thread at a time. What is
// found may be gone from the map already: it must be storage that stays, which says whose it is.

#include "allocator/biased_mutex.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace cistern {

template <class Value, class Processors = HostProcessors>
class PublishedMap {
 public:
  PublishedMap() = default;
  PublishedMap(const PublishedMap&) = delete;
  PublishedMap& operator=(const PublishedMap&) = delete;

  // Null: there is none, or it is just being changed. Requires: `key` is not 0. O(1).
  [[nodiscard]] Value* find(std::uint64_t key) const noexcept { return look(key).value_or(nullptr); }
  // Null: there is none; nothing: it is just being changed. Likewise.
  [[nodiscard]] std::optional<Value*> look(std::uint64_t key) const noexcept {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    const Table* const table = table_.load(std::memory_order_acquire);
    if ((version & 1) != 0) return std::nullopt;
    if (table == nullptr) return nullptr;
    Value* value = nullptr;
    std::size_t place = home_of(key, table->mask);
    for (std::size_t tried = 0; tried <= table->mask; ++tried, place = (place + 1) & table->mask) {
      const Entry& entry = table->entries[place];
      const std::uint64_t found = entry.key.load(std::memory_order_acquire);
      if (found == key) value = entry.value.load(std::memory_order_acquire);
      if (found == key || found == 0) break;
    }
    // Whoever reads a part of a change has read, by that, that the version was odd.
    if (version_.load(std::memory_order_relaxed) != version) return std::nullopt;
    return value;
  }

  // Makes room for so many more. Throws std::bad_alloc, unchanged. O(1) amortised.
  void reserve(std::size_t more) {
    std::size_t capacity = capacity_ == 0 ? kLeastCapacity : capacity_;
    while ((size_ + more) * 2 > capacity) capacity *= 2;
    if (capacity > capacity_) grow(capacity);
  }
  [[nodiscard]] bool has_room(std::size_t more) const noexcept { return (size_ + more) * 2 <= capacity_; }
  // The value of a key that is new or known. Requires: room for one more, if it is new. O(1).
  void put(std::uint64_t key, Value* value) noexcept {
    // Whoever finds the key finds a value of it: this needs no version of its own.
    Entry& entry = entry_of(*tables_, key);
    if (entry.key.load(std::memory_order_relaxed) == 0) {
      assert(has_room(1));
      ++size_;
    }
    entry.value.store(value, std::memory_order_release);
    entry.key.store(key, std::memory_order_release);
  }
  // Nothing, if the key is not there. O(1).
  void erase(std::uint64_t key) noexcept;
  // All whose values `goes` says. O(room).
  template <class Goes>
  void erase_if(Goes&& goes) noexcept;
  // Calls visit(key, value). By who may change the map. O(room).
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < capacity_; ++i)
      if (const std::uint64_t key = tables_->entries[i].key.load(std::memory_order_relaxed))
        visit(key, *tables_->entries[i].value.load(std::memory_order_relaxed));
  }
  // Whether the key is there. By who may change the map.
  [[nodiscard]] bool contains(std::uint64_t key) const noexcept {
    return tables_ != nullptr && entry_of(*tables_, key).key.load(std::memory_order_relaxed) != 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  template <class T>
  using Atomic = typename Processors::template Atomic<T>;
  struct Entry {
    Atomic<std::uint64_t> key{0};  // 0: empty
    Atomic<Value*> value{nullptr};
  };
  struct Table {
    std::size_t mask = 0;
    std::unique_ptr<Entry[]> entries;
    std::unique_ptr<Table> outgrown;
  };
  class Change {
   public:
    explicit Change(Atomic<std::uint64_t>& version)
        : version_(version), before_(version.load(std::memory_order_relaxed)) {
      version_.store(before_ + 1, std::memory_order_relaxed);
    }
    ~Change() { version_.store(before_ + 2, std::memory_order_release); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    Atomic<std::uint64_t>& version_;
    const std::uint64_t before_;
  };
  static constexpr std::size_t kLeastCapacity = 16;

  [[nodiscard]] static std::size_t home_of(std::uint64_t key, std::size_t mask) noexcept {
    return (key * 0x9e3779b97f4a7c15ULL >> 32) & mask;
  }
  // The entry of the key, or the empty one where it would go.
  [[nodiscard]] static Entry& entry_of(const Table& table, std::uint64_t key) noexcept {
    std::size_t place = home_of(key, table.mask);
    for (;; place = (place + 1) & table.mask) {
      const std::uint64_t found = table.entries[place].key.load(std::memory_order_relaxed);
      if (found == key || found == 0) return table.entries[place];
    }
  }
  void grow(std::size_t capacity);
  void close_gap(std::size_t gap) noexcept;

  Atomic<std::uint64_t> version_{0};  // odd: it is being changed
  Atomic<Table*> table_{nullptr};
  std::unique_ptr<Table> tables_;  // the same, and those that were outgrown
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
};

// The new table is complete before anybody finds it.
template <class Value, class Processors>
void PublishedMap<Value, Processors>::grow(std::size_t capacity) {
  auto table = std::make_unique<Table>();
  table->mask = capacity - 1;
  table->entries = std::make_unique<Entry[]>(capacity);
  for (std::size_t i = 0; i < capacity_; ++i) {
    const Entry& old = tables_->entries[i];
    const std::uint64_t key = old.key.load(std::memory_order_relaxed);
    if (key == 0) continue;
    Entry& entry = entry_of(*table, key);
    entry.value.store(old.value.load(std::memory_order_relaxed), std::memory_order_relaxed);
    entry.key.store(key, std::memory_order_relaxed);
  }
  table->outgrown = std::move(tables_);
  tables_ = std::move(table);
  capacity_ = capacity;
  const Change change(version_);
  table_.store(tables_.get(), std::memory_order_release);
}

template <class Value, class Processors>
void PublishedMap<Value, Processors>::erase(std::uint64_t key) noexcept {
  if (!contains(key)) return;
  const Change change(version_);
  close_gap(static_cast<std::size_t>(&entry_of(*tables_, key) - tables_->entries.get()));
}

template <class Value, class Processors>
template <class Goes>
void PublishedMap<Value, Processors>::erase_if(Goes&& goes) noexcept {
  if (size_ == 0) return;
  const Change change(version_);
  for (std::size_t i = 0; i < capacity_;) {
    const Entry& entry = tables_->entries[i];
    if (entry.key.load(std::memory_order_relaxed) != 0 && goes(*entry.value.load(std::memory_order_relaxed)))
      close_gap(i);  // another may be there now
    else
      ++i;
  }
}

// Later entries of the same run move back, so that no marker of what is gone is needed. Requires: a Change.
template <class Value, class Processors>
void PublishedMap<Value, Processors>::close_gap(std::size_t gap) noexcept {
  const std::size_t mask = tables_->mask;
  Entry* const entries = tables_->entries.get();
  for (std::size_t i = (gap + 1) & mask;; i = (i + 1) & mask) {
    const std::uint64_t moved = entries[i].key.load(std::memory_order_relaxed);
    if (moved == 0) break;
    if (((i - home_of(moved, mask)) & mask) < ((i - gap) & mask)) continue;
    entries[gap].value.store(entries[i].value.load(std::memory_order_relaxed), std::memory_order_release);
    entries[gap].key.store(moved, std::memory_order_release);
    gap = i;
  }
  // Who reads these sees that the map is being changed: that of a key behind the gap there is nothing is not to be
  // said.
  entries[gap].key.store(0, std::memory_order_release);
  entries[gap].value.store(nullptr, std::memory_order_release);
  --size_;
}

}  // namespace cistern
