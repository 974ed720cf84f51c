// Blocks that several streams use.

#include <array>
#include <cstring>
#include <vector>

#include "tests/gpu/heap_on_device.h"

namespace cistern {
namespace {

class StreamOrder : public HeapOnDevice {};

TEST_F(StreamOrder, ABlockWaitsForTheBusyStreamThatWasRecorded) {
  const Stream owner = Stream::create(), reader = Stream::create();
  void* shared = allocate(32 * kMiB, owner);
  void* spare = allocate(32 * kMiB, owner);

  Roadblock busy(reader);
  fill_async(shared, 1, 32 * kMiB, reader);
  record_stream(shared, reader);
  deallocate(shared);
  deallocate(spare);
  EXPECT_EQ(memory_stats().active_bytes.all.current, static_cast<std::int64_t>(32 * kMiB));
  // A hit, so that no driver call is made that could wait for the busy stream.
  EXPECT_EQ(allocate(32 * kMiB, owner), spare);

  busy.open();
  reader.synchronize();
  EXPECT_EQ(allocate(32 * kMiB, owner), shared);
  EXPECT_EQ(memory_stats().num_device_alloc, 2);
  deallocate(shared);
  deallocate(spare);
}

TEST_F(StreamOrder, OneSlowStreamDoesNotHideAnothersFinishedFrees) {
  const Stream owner = Stream::create(), slow = Stream::create(), quick = Stream::create();
  void* held_up = allocate(32 * kMiB, owner);
  void* done = allocate(48 * kMiB, owner);
  Roadblock busy(slow);
  deallocate(held_up, slow);
  deallocate(done, quick);
  quick.synchronize();
  EXPECT_EQ(allocate(48 * kMiB, owner), done);
  deallocate(done);
  busy.open();
}

TEST_F(StreamOrder, AReaderSeesTheOldBytesAlthoughTheBlockWasFreed) {
  const Stream owner = Stream::create(), reader = Stream::create();
  constexpr std::size_t kBytes = 32 * kMiB;
  DeviceBuffer<unsigned char> copy(kBytes, reader);
  for (unsigned char round = 1; round <= 8; ++round) {
    void* block = allocate(kBytes, owner);
    fill_async(block, round, kBytes, owner);
    reader.wait_event(owner.record_event());
    copy_async(copy.data(), block, kBytes, reader);
    record_stream(block, reader);
    deallocate(block);

    // Whatever memory this is, to overwrite it must not reach what the reader still reads.
    void* next = allocate(kBytes, owner);
    fill_async(next, 0xee, kBytes, owner);
    deallocate(next);

    std::vector<unsigned char> bytes(kBytes);
    copy_async(bytes.data(), copy.data(), kBytes, reader);
    reader.synchronize();
    // Each is the next one's equal: by a call, for a loop over so many takes long in tests, which are not optimised.
    EXPECT_EQ(bytes.front(), round);
    EXPECT_EQ(std::memcmp(bytes.data(), bytes.data() + 1, kBytes - 1), 0) << "in round " << int{round};
  }
  owner.synchronize();
}

TEST_F(StreamOrder, EmptyCacheWaitsForPendingFrees) {
  const Stream owner = Stream::create(), reader = Stream::create();
  void* block = allocate(256 * kMiB, owner);
  for (unsigned char i = 0; i < 4; ++i) fill_async(block, i, 256 * kMiB, reader);
  deallocate(block, reader);
  empty_cache();
  EXPECT_TRUE(reader.query());
  EXPECT_EQ(memory_reserved(), 0u);
}

TEST_F(StreamOrder, AStreamMayEndBeforeItsBlocks) {
  void* block = nullptr;
  {
    const Stream owner = Stream::create(), reader = Stream::create();
    block = allocate(32 * kMiB, owner);
    fill_async(block, 1, 32 * kMiB, owner);
    reader.wait_stream(owner);
    record_stream(block, reader);
    reader.synchronize();
  }
  deallocate(block);
  synchronize();
}

}  // namespace
}  // namespace cistern
