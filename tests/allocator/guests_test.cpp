// Blocks in pages that show another stream: they are found by their addresses, and by nothing else.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "allocator/device_allocator.h"
#include "tests/allocator/heap_of_streams.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

struct HeapWithGuests : DeviceAllocator {
  using DeviceAllocator::DeviceAllocator;
  [[nodiscard]] std::size_t guests() {
    const Section section(*this);
    return stream_heaps_.guests();
  }
  [[nodiscard]] const StreamHeap* host_of(std::uint64_t address) const { return stream_heaps_.find_by_page(address); }
  [[nodiscard]] StreamHeap* guest_at(std::uint64_t address) const { return stream_heaps_.find_guest(address); }
};

class Guests : public HeapOfStreams<HeapWithGuests> {
 protected:
  // A half of each handle is free, and there may be no more: the half of one another stream had, at an address of its
  // own.
  Guests()
      : HeapOfStreams("oom_dump:off,policy:paged,per_process_memory_fraction:0.0078125", HistoryOptions::always_on()) {
    std::vector<std::uint64_t> firsts;
    for (int handle = 0; handle < 16; ++handle) {
      firsts.push_back(take(kMega, host_));
      hosts_.push_back(take(kMega, host_));
    }
    for (const std::uint64_t first : firsts) give(first);
    give(take(kMega, guest_));
  }
  // What it gets of that now begins where the host had it.
  std::uint64_t take_as_guest(std::size_t bytes) {
    const std::uint64_t address = take(bytes, guest_);
    EXPECT_NE(heap_.guest_at(address), nullptr);
    EXPECT_NE(heap_.host_of(address), heap_.guest_at(address));
    return address;
  }

  const StreamIdentity host_ = make_stream();
  const StreamIdentity guest_ = make_stream();
  std::vector<std::uint64_t> hosts_;
};

TEST_F(Guests, AreFoundWhileTheyAreLive) {
  EXPECT_EQ(heap_.guest_at(hosts_.front()), nullptr);
  EXPECT_EQ(heap_.guests(), 0U);
  const std::uint64_t address = take_as_guest(512 * kKibi);
  EXPECT_EQ(heap_.guests(), 1U);
  EXPECT_EQ(heap_.guest_at(address)->live.find(address)->address, address);
  EXPECT_EQ(heap_.look_at(address)->stream, guest_.id);
  EXPECT_EQ(heap_.look_at(hosts_.front())->stream, host_.id);
  heap_.check();
  give(address);
  EXPECT_EQ(heap_.guests(), 0U);
  EXPECT_EQ(heap_.guest_at(address), nullptr);
  EXPECT_FALSE(heap_.look_at(address).has_value());
  heap_.check();
}

// The first comes with the heap's lock, and the others in its bytes without it, until there is no room for so many.
TEST_F(Guests, AreAsManyAsAStreamHas) {
  turns(guest_, 100);
  for (const std::size_t count : {std::size_t{5}, std::size_t{100}, std::size_t{30}}) {
    std::vector<std::uint64_t> blocks;
    for (std::size_t i = 0; i < count; ++i) blocks.push_back(take(4 * kKibi, guest_));
    heap_.check();
    EXPECT_GE(heap_.guests(), count / 2);
    for (const std::uint64_t block : blocks) give(block);
    heap_.check();
    EXPECT_EQ(heap_.guests(), 0U);
  }
}

// Steps that are followed are not told to anybody, and so guests of theirs would not be found.
TEST_F(Guests, AreInNoStepsThatAreFollowed) {
  const auto is_followed = [this](const StreamIdentity& stream, std::size_t bytes) {
    const std::uint64_t kept = take(bytes, stream);
    turns(stream, 2000);
    StreamHeap* const of_guest = heap_.guest_at(kept);
    const bool follows = (of_guest != nullptr ? *of_guest : *heap_.find_by_page(kept)).recurrence.is_followed();
    give(kept);
    return follows;
  };
  EXPECT_TRUE(is_followed(host_, 256 * kKibi));
  EXPECT_FALSE(is_followed(guest_, 256 * kKibi));
  heap_.check();
}

TEST_F(Guests, AreFreedByAnyThread) {
  turns(guest_, 100);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint64_t> blocks;
    for (std::size_t i = 0; i < 10; ++i) blocks.push_back(take_as_guest(4 * kKibi));
    std::thread([&] {
      for (const std::uint64_t block : blocks) give(block);
    }).join();
    StreamHeap* const heap = heap_.guest_at(blocks.front());
    EXPECT_TRUE(heap == nullptr || heap->returned.first() != 0) << "they come back to the stream that has them";
    give(take(kKibi, guest_));
    EXPECT_EQ(heap_.guests(), 0U);
    heap_.check();
  }
}

// It is a guest until the other stream is done with it.
TEST_F(Guests, AreUsedByOtherStreams) {
  turns(guest_, 100);
  StreamUse use{host_, 0, nullptr};
  const std::uint64_t address = take_as_guest(512 * kKibi);
  EXPECT_TRUE(heap_.record_use(address, use));
  give(address);
  heap_.check();
  give(take(kKibi, guest_));
  EXPECT_EQ(heap_.guests(), 0U);
  heap_.check();
}

// Where its bytes become the stream's whose the pages are, it is none.
TEST_F(Guests, AreNoneInPagesOfTheirOwn) {
  const std::uint64_t address = take_as_guest(512 * kKibi);
  const std::uint64_t gathered = take(kMega, guest_);  // more than it has left
  EXPECT_EQ(heap_.guest_at(gathered), nullptr);
  EXPECT_EQ(heap_.host_of(gathered), heap_.guest_at(address));
  give(gathered);
  give(address);
  heap_.check();
}

TEST_F(Guests, StayWhenTheHostEnds) {
  const std::uint64_t address = take_as_guest(512 * kKibi);
  heap_.end_stream({host_, 0, nullptr});
  EXPECT_EQ(heap_.look_at(address)->stream, guest_.id);
  heap_.check();
  heap_.end_stream({guest_, 0, nullptr});
  heap_.check();
  give(address);
  EXPECT_EQ(heap_.guests(), 0U);
  heap_.empty_cache();
  heap_.check();
}

}  // namespace
}  // namespace cistern
