// Blocks in pages that show another stream: they are found by their addresses.
#include <gtest/gtest.h>

#include <array>
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
  // Of how many addresses something is known.
  [[nodiscard]] std::size_t known() {
    const Section section(*this);
    std::size_t count = 0;
    stream_heaps_.for_each_guest([&](std::uint64_t, const StreamHeap::Guest&) { ++count; });
    return count;
  }
  [[nodiscard]] std::size_t guests() {
    const Section section(*this);
    std::size_t count = 0;
    stream_heaps_.for_each_guest(
        [&](std::uint64_t, const StreamHeap::Guest& guest) { count += guest.is_live ? 1 : 0; });
    return count;
  }
  // As long as others have all room, is there some for a block of the stream at each of these?
  [[nodiscard]] std::vector<bool> have_room(const std::vector<std::uint64_t>& addresses, StreamHeap& heap) {
    const Section section(*this);
    stream_heaps_.make_room_for_guest();
    for (std::uint64_t other = 512; stream_heaps_.has_room_for_block(other + 512, heap); other += 512) {
      stream_heaps_.add_block(other, heap);
      stream_heaps_.remove_block(other, heap);
    }
    std::vector<bool> have;
    for (const std::uint64_t address : addresses) have.push_back(stream_heaps_.has_room_for_block(address, heap));
    return have;
  }
  [[nodiscard]] StreamHeap* host_of(std::uint64_t address) const { return stream_heaps_.find_by_page(address); }
  [[nodiscard]] const StreamHeap::Guest* known_at(std::uint64_t address) const {
    return stream_heaps_.find_guest(address);
  }
};

class Guests : public HeapOfStreams<HeapWithGuests> {
 protected:
  static constexpr std::array<std::size_t, 4> kRound = {256 * kKibi, 128 * kKibi, 64 * kKibi, 4 * kKibi};

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
  [[nodiscard]] bool is_guest(std::uint64_t address) const {
    const StreamHeap::Guest* const known = heap_.known_at(address);
    return known != nullptr && known->is_live;
  }
  // What it gets of that now begins where the host had it.
  std::uint64_t take_as_guest(std::size_t bytes) {
    const std::uint64_t address = take(bytes, guest_);
    EXPECT_TRUE(is_guest(address));
    EXPECT_NE(heap_.host_of(address), heap_.known_at(address)->of);
    return address;
  }
  // Four blocks come and go, again and again.
  void rounds(const StreamIdentity& stream, int count) {
    for (; count > 0; --count) {
      std::vector<std::uint64_t> blocks;
      for (const std::size_t bytes : kRound) blocks.push_back(take(bytes, stream));
      for (const std::uint64_t block : blocks) give(block);
    }
  }

  const StreamIdentity host_ = make_stream();
  const StreamIdentity guest_ = make_stream();
  std::vector<std::uint64_t> hosts_;
};

TEST_F(Guests, AreFoundWhileTheyAreLive) {
  EXPECT_EQ(heap_.known_at(hosts_.front()), nullptr);
  EXPECT_EQ(heap_.guests(), 0U);
  const std::uint64_t address = take_as_guest(512 * kKibi);
  EXPECT_EQ(heap_.guests(), 1U);
  EXPECT_EQ(heap_.known_at(address)->of->live.find(address)->address, address);
  EXPECT_EQ(heap_.look_at(address)->stream, guest_.id);
  EXPECT_EQ(heap_.look_at(hosts_.front())->stream, host_.id);
  heap_.check();
  give(address);
  EXPECT_EQ(heap_.guests(), 0U);
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

// What is known of addresses where no guest is any more takes no room from those that come.
TEST_F(Guests, AreForgottenWhenThereIsNoRoom) {
  for (std::size_t bytes = 512; bytes <= 512 * kKibi; bytes += 512) {
    const std::uint64_t first = take(bytes, guest_);
    const std::uint64_t second = take(4 * kKibi, guest_);
    give(first);
    give(second);
  }
  EXPECT_LE(heap_.known(), 16U);
  heap_.check();
}

TEST_F(Guests, ComeAndGoWithStepsThatAreFollowed) {
  rounds(guest_, 1000);
  static_cast<void>(heap_.look_at(4096));  // with which all that is followed is carried out, and none is live
  std::vector<std::uint64_t> blocks;
  for (const std::size_t bytes : kRound) blocks.push_back(take(bytes, guest_));
  ASSERT_NE(heap_.known_at(blocks.front()), nullptr);
  const StreamHeap* const of_guest = heap_.known_at(blocks.front())->of;
  EXPECT_TRUE(of_guest->recurrence.is_followed());
  for (const std::uint64_t block : blocks) {
    EXPECT_NE(heap_.host_of(block), of_guest);
    give(block);
    EXPECT_TRUE(of_guest->recurrence.is_followed()) << "its free was expected";
  }
  heap_.check();
  EXPECT_EQ(heap_.guests(), 0U);
}

// Steps that are followed come there without asking.
TEST_F(Guests, ComeWhereOneWasWithoutRoom) {
  const std::uint64_t address = take_as_guest(4 * kKibi);
  StreamHeap& of_guest = *heap_.known_at(address)->of;
  EXPECT_EQ(heap_.have_room({address, hosts_.front()}, of_guest), (std::vector<bool>{true, false}));
  EXPECT_EQ(heap_.have_room({hosts_.front()}, *heap_.host_of(hosts_.front())), std::vector<bool>{true});
  give(address);
  heap_.check();
}

// Others take all room meanwhile: who is carried out needs none.
TEST_F(Guests, StepsThatAreFollowedKeepTheirRoom) {
  const StreamIdentity other = make_stream();
  give(take(kMega, other));
  turns(other, 100);
  rounds(guest_, 1000);
  for (std::size_t most = 0; most < 40; ++most) {
    std::vector<std::uint64_t> blocks = {take(kRound.front(), guest_)};
    while (blocks.size() <= most) blocks.push_back(take(4 * kKibi, other));
    static_cast<void>(heap_.look_at(4096));  // all that is followed is carried out
    for (const std::uint64_t block : blocks) give(block);
    rounds(guest_, 200);
    heap_.check();
  }
}

TEST_F(Guests, AreFreedByAnyThread) {
  turns(guest_, 100);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint64_t> blocks;
    for (std::size_t i = 0; i < 10; ++i) blocks.push_back(take_as_guest(4 * kKibi));
    StreamHeap* const of_guest = heap_.known_at(blocks.front())->of;
    std::thread([&] {
      for (const std::uint64_t block : blocks) give(block);
    }).join();
    EXPECT_NE(of_guest->returned.first(), 0U) << "they come back to the stream that has them";
    give(take(kKibi, guest_));
    EXPECT_EQ(heap_.guests(), 0U);
    heap_.check();
  }
}

// Its stream follows steps, which tell nobody, and another thread frees it.
TEST_F(Guests, ThatAreFollowedAreFreedByAnyThread) {
  rounds(guest_, 1000);
  static_cast<void>(heap_.look_at(4096));
  std::vector<std::uint64_t> blocks;
  for (const std::size_t bytes : kRound) blocks.push_back(take(bytes, guest_));
  ASSERT_NE(heap_.known_at(blocks.front()), nullptr);
  EXPECT_TRUE(heap_.known_at(blocks.front())->of->recurrence.is_followed());
  StreamHeap* const of_page = heap_.host_of(blocks.front());
  std::thread([&] {
    for (const std::uint64_t block : blocks) {
      give(block);
      EXPECT_EQ(of_page->returned.first(), 0U) << "it is not for the stream of the page";
    }
  }).join();
  give(take(kKibi, guest_));
  EXPECT_EQ(heap_.guests(), 0U);
  heap_.check();
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

TEST_F(Guests, AreNoneInPagesOfTheirOwn) {
  const std::uint64_t address = take_as_guest(512 * kKibi);
  const std::uint64_t gathered = take(kMega, guest_);  // more than it has left
  EXPECT_FALSE(is_guest(gathered));
  EXPECT_EQ(heap_.host_of(gathered), heap_.known_at(address)->of);
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
