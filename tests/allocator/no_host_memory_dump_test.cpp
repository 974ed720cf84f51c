// The snapshot of a dump when there is no host memory for a copy: the same as any other, read by the
// same tools, of one moment.

#include <cistern/allocator.h>
#include <cistern/scope.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocator/dump_files.h"
#include "tests/allocator/refusing_driver.h"
#include "tests/byte_units.h"
#include "tests/history/json_schema.h"
#include "tests/history/load.h"
#include "tools/snapshot_reader.h"

namespace cistern {
namespace {

class NoHostMemoryDump : public ::testing::TestWithParam<const char*> {
 protected:
  ~NoHostMemoryDump() override { remove_dump(path_); }

  // The text of a request's failure, from whose refusal on there was no host memory.
  std::string failure(std::size_t bytes) {
    OutOfMemoryError::Text text;
    driver_.armed = true;
    try {
      static_cast<void>(allocator_.allocate(bytes));
    } catch (const OutOfMemoryError& error) {
      text = error.what();
    }
    testing_host::is_gone = false;
    driver_.armed = false;
    return std::string(text.view());
  }

  const std::string path_ = ::testing::TempDir() + "cistern-no-host-memory-" + std::to_string(::getpid()) + ".txt";
  RefusingDriver driver_;
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:" + path_ + "," + GetParam())}};
};

void expect_equal(const SegmentInfo& a, const SegmentInfo& b) {
  EXPECT_EQ(a.address, b.address);
  EXPECT_EQ(a.total_size, b.total_size);
  EXPECT_EQ(a.allocated_size, b.allocated_size);
  EXPECT_EQ(a.active_size, b.active_size);
  EXPECT_EQ(a.requested_size, b.requested_size);
  EXPECT_EQ(a.stream, b.stream);
  EXPECT_EQ(a.is_large, b.is_large);
  EXPECT_EQ(a.is_expandable, b.is_expandable);
  EXPECT_EQ(a.segment_pool_id, b.segment_pool_id);
  ASSERT_EQ(a.blocks.size(), b.blocks.size());
  for (std::size_t i = 0; i < a.blocks.size(); ++i) {
    EXPECT_EQ(a.blocks[i].address, b.blocks[i].address);
    EXPECT_EQ(a.blocks[i].size, b.blocks[i].size);
    EXPECT_EQ(a.blocks[i].requested_size, b.blocks[i].requested_size);
    EXPECT_EQ(a.blocks[i].state, b.blocks[i].state);
    EXPECT_EQ(a.blocks[i].tag, b.blocks[i].tag);
    EXPECT_EQ(a.blocks[i].stack == kNoStack, b.blocks[i].stack == kNoStack);
  }
}

std::string text_of(const Snapshot& snapshot, const TraceEntry& entry) {
  return entry.user_metadata < 0 ? "" : snapshot.texts[static_cast<std::size_t>(entry.user_metadata)];
}

// A copy's stack lacks the frames of ours that come before the user's call, which have no names here.
bool is_end_of(const StackInfo& part, const StackInfo& whole) {
  return part.size() <= whole.size() &&
         std::equal(part.rbegin(), part.rend(), whole.rbegin(),
                    [](const FrameInfo& a, const FrameInfo& b) { return a.address == b.address; });
}

TEST_P(NoHostMemoryDump, HasWhatACopyHas) {
  HistoryOptions history;
  history.context = HistoryContext::all;
  allocator_.record_history(history);
  allocator_.set_user_metadata("step \"1\"");
  allocator_.mark_range("forward", true, 0);
  std::vector<void*> blocks;
  {
    const TagScope tag("weights");
    for (std::size_t i = 0; i < 6; ++i) blocks.push_back(allocator_.allocate((3 * i + 1) * kMega));
  }
  blocks.push_back(allocator_.allocate(1000));
  allocator_.begin_allocate_to_pool(0, {3, 0}, PoolFilter::every_stream());
  blocks.push_back(allocator_.allocate(2 * kMega));
  allocator_.end_allocate_to_pool(0, {3, 0});
  allocator_.deallocate(blocks[1]);
  allocator_.deallocate(blocks[4]);

  const std::string text = failure(100 * kMega);
  const std::string path = snapshot_named_in(text);
  ASSERT_NE(path, "") << text;
  const auto schema = nlohmann::json::parse(std::ifstream(CISTERN_SOURCE_DIR "/docs/snapshot-schema.json"));
  EXPECT_EQ(schema_faults(schema, nlohmann::json::parse(read_whole(path))), std::vector<std::string>());
  const Snapshot streamed = read_snapshot(path);
  Snapshot copied = allocator_.snapshot();

  ASSERT_EQ(streamed.segments.size(), copied.segments.size());
  for (std::size_t i = 0; i < copied.segments.size(); ++i) expect_equal(streamed.segments[i], copied.segments[i]);
  EXPECT_EQ(streamed.device_stats, copied.device_stats);
  EXPECT_EQ(streamed.tags, copied.tags);
  EXPECT_EQ(streamed.settings.text, copied.settings.text);
  EXPECT_EQ(streamed.settings.trace_alloc_max_entries, copied.settings.trace_alloc_max_entries);
  EXPECT_EQ(streamed.settings.roundup_power2_divisions, copied.settings.roundup_power2_divisions);
  ASSERT_EQ(streamed.external_annotations.size(), 1U);
  EXPECT_EQ(streamed.external_annotations[0].name, "forward");

  ASSERT_EQ(copied.device_traces[0].back().action, TraceAction::snapshot) << "the dump's";
  copied.device_traces[0].pop_back();
  ASSERT_EQ(streamed.device_traces[0].size(), copied.device_traces[0].size());
  for (std::size_t i = 0; i < copied.device_traces[0].size(); ++i) {
    const TraceEntry& a = streamed.device_traces[0][i];
    const TraceEntry& b = copied.device_traces[0][i];
    EXPECT_EQ(a.action, b.action);
    EXPECT_EQ(a.address, b.address);
    EXPECT_EQ(a.size, b.size);
    EXPECT_EQ(a.stream, b.stream);
    EXPECT_EQ(a.pool_id, b.pool_id);
    EXPECT_EQ(a.tag, b.tag);
    EXPECT_EQ(text_of(streamed, a), text_of(copied, b));
    ASSERT_EQ(a.stack == kNoStack, b.stack == kNoStack);
    if (a.stack == kNoStack) continue;
    EXPECT_TRUE(
        is_end_of(copied.stacks[static_cast<std::size_t>(b.stack)], streamed.stacks[static_cast<std::size_t>(a.stack)]))
        << i;
  }
  ASSERT_FALSE(streamed.stacks.empty());
  for (const FrameInfo& frame : streamed.stacks[0]) EXPECT_EQ(frame.name.substr(0, 2), "0x");
  EXPECT_NE(read_whole(path_).find("a snapshot is in '" + path + "', written while other threads waited"),
            std::string::npos);
}

// A thread that is giving memory back, and stays where it is meanwhile.
class GivingBack {
 public:
  explicit GivingBack(const DriverApi& inner) : inner_(inner), api(inner) {
    api.mem_unmap = {this, [](void* self, CUdeviceptr pointer, std::size_t bytes) {
                       auto& me = *static_cast<GivingBack*>(self);
                       me.stay();
                       return me.inner_.mem_unmap(pointer, bytes);
                     }};
    api.mem_free = {this, [](void* self, CUdeviceptr pointer) {
                      auto& me = *static_cast<GivingBack*>(self);
                      me.stay();
                      return me.inner_.mem_free(pointer);
                    }};
  }
  // To be ended before the allocator, however the test ends.
  struct Under {
    explicit Under(GivingBack& thread) : thread_(thread) {}
    ~Under() { thread_.finish(); }
    Under(const Under&) = delete;
    Under& operator=(const Under&) = delete;

   private:
    GivingBack& thread_;
  };
  void finish() {
    change_to(kEnds);
    if (thread_.joinable()) thread_.join();
  }
  // Takes some memory of a stream and frees some between, and stops where it gives that back.
  [[nodiscard]] Under start(CachingAllocator& allocator) {
    thread_ = std::thread([this, &allocator] {
      state_.wait(kIdle);
      if (state_ == kEnds) return;
      std::vector<void*> blocks;
      for (int i = 0; i < 5; ++i) blocks.push_back(allocator.allocate(20 * kMega));
      allocator.deallocate(blocks[1]);
      allocator.deallocate(blocks[3]);
      change_to(kEmptying);
      allocator.empty_cache();
    });
    return Under(*this);
  }
  void go_on_to_give_back() {
    change_to(kBegins);
    for (int state = state_; state != kGivingBack; state = state_) state_.wait(state);
  }

 private:
  enum : int { kIdle, kBegins, kEmptying, kGivingBack, kEnds };
  void stay() {
    if (state_ != kEmptying) return;
    change_to(kGivingBack);
    state_.wait(kGivingBack);
  }
  void change_to(int state) {
    state_ = state;
    state_.notify_all();
  }
  const DriverApi& inner_;
  std::atomic<int> state_{kIdle};
  std::thread thread_;

 public:
  DriverApi api;
};

struct Meanwhile {
  explicit Meanwhile(const std::string& options)
      : allocator({.driver = &giving_back.api,
                   .options = AllocatorOptions::parse(options + ",oom_dump:" + path,
                                                      AllocatorOptions::parse("policy:classic"))}) {}
  ~Meanwhile() { remove_dump(path); }

  // Of a failure in the midst of giving back, streamed; the same copied goes to `copied`.
  Snapshot streamed(Snapshot& copied) {
    const GivingBack::Under under_way = giving_back.start(allocator);
    allocator.add_out_of_memory_observer([&](const OutOfMemoryReport&) {
      // This thread has no host memory, and the dump comes next.
      giving_back.go_on_to_give_back();
    });
    driver.armed = true;
    OutOfMemoryError::Text said;
    try {
      static_cast<void>(allocator.allocate(129 * kMega));
    } catch (const OutOfMemoryError& error) {
      said = error.what();
    }
    testing_host::is_gone = false;
    driver.armed = false;
    copied = allocator.snapshot();
    return read_snapshot(snapshot_named_in(said));
  }

  const std::string path = ::testing::TempDir() + "cistern-dump-meanwhile-" + std::to_string(::getpid()) + ".txt";
  RefusingDriver driver;
  GivingBack giving_back{driver.api()};
  CachingAllocator allocator;
};

TEST(NoHostMemoryDumpMeanwhile, JoinsPagesOnTheirWayAsACopyDoes) {
  Meanwhile meanwhile("expandable_segments:True");
  Snapshot copied;
  const Snapshot streamed = meanwhile.streamed(copied);
  ASSERT_EQ(copied.segments.size(), 1U);
  EXPECT_EQ(copied.segments[0].blocks.size(), 5U);
  ASSERT_EQ(streamed.segments.size(), copied.segments.size());
  for (std::size_t i = 0; i < copied.segments.size(); ++i) expect_equal(streamed.segments[i], copied.segments[i]);
  EXPECT_EQ(streamed.device_stats, copied.device_stats);
  EXPECT_EQ(meanwhile.allocator.snapshot().segments.size(), 3U) << "and then they are gone";
}

TEST(NoHostMemoryDumpMeanwhile, LeavesOutSegmentsOnTheirWayAsACopyDoes) {
  Meanwhile meanwhile("policy:classic");
  Snapshot copied;
  const Snapshot streamed = meanwhile.streamed(copied);
  ASSERT_EQ(copied.segments.size(), 3U);
  EXPECT_EQ(copied.device_stats.at(0).segment.all.current, 3);
  ASSERT_EQ(streamed.segments.size(), copied.segments.size());
  for (std::size_t i = 0; i < copied.segments.size(); ++i) expect_equal(streamed.segments[i], copied.segments[i]);
  EXPECT_EQ(streamed.device_stats, copied.device_stats);
}

// Other threads, which have memory, go on until the locks are taken and after they are let go.
TEST_P(NoHostMemoryDump, IsOfOneMomentUnderLoad) {
  HistoryOptions off;
  off.enabled = HistoryEnabled::none;
  allocator_.record_history(off);
  std::atomic<bool> ends{false};
  std::atomic<int> rounds{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      std::vector<void*> live;
      for (std::size_t round = 0; !ends; ++round, ++rounds) {
        live.push_back(allocator_.allocate(512 + (round * 7919 + i) % 60000));
        if (live.size() < 40) continue;
        for (std::size_t k = 0; k < live.size(); k += 2) allocator_.deallocate(live[k]);
        std::vector<void*> rest;
        for (std::size_t k = 1; k < live.size(); k += 2) rest.push_back(live[k]);
        live.swap(rest);
      }
      for (void* block : live) allocator_.deallocate(block);
    });
  while (rounds < 1000) std::this_thread::yield();
  for (int i = 0; i < 5; ++i) {
    const Snapshot snapshot = read_snapshot(snapshot_named_in(failure(127 * kMega)));
    std::int64_t reserved = 0;
    std::int64_t allocated = 0;
    for (const SegmentInfo& segment : snapshot.segments) {
      reserved += segment.total_size;
      std::uint64_t address = segment.address;
      for (const BlockInfo& block : segment.blocks) {
        EXPECT_EQ(block.address, address);
        address += static_cast<std::uint64_t>(block.size);
        allocated += block.state == BlockState::active_allocated ? block.size : 0;
      }
      EXPECT_EQ(address, segment.address + static_cast<std::uint64_t>(segment.total_size));
    }
    ASSERT_EQ(snapshot.device_stats.size(), 1U);
    EXPECT_EQ(snapshot.device_stats[0].reserved_bytes.all.current, reserved);
    EXPECT_EQ(snapshot.device_stats[0].allocated_bytes.all.current, allocated);
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_NO_THROW(allocator_.check());
}

// The same with all that a history can hold.
TEST_P(NoHostMemoryDump, HasAHistoryOfThatMomentUnderLoad) {
  allocator_.record_history({});
  Load load(allocator_, driver_.driver.create_stream(), 60000);
  for (int i = 0; i < 5; ++i) {
    load.go_on();
    const Snapshot snapshot = read_snapshot(snapshot_named_in(failure(127 * kMega)));
    ASSERT_EQ(fault_of_moment(snapshot), "") << "dump " << i;
    ASSERT_EQ(fault_of_entries(snapshot), "") << "dump " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, NoHostMemoryDump, ::testing::Values("policy:classic", "expandable_segments:True"));

}  // namespace
}  // namespace cistern
