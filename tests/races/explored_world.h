#pragma once

// What a scenario of the explorer works with: the allocator over a stepped driver whose race
// detector looks at every kernel, beside the reference model, which predicts each address and each
// figure. Streams step where the scenario lets them, in an order that the explorer chooses.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/allocator/capturing_driver.h"
#include "tests/byte_units.h"
#include "tests/model/reference_allocator.h"
#include "tests/races/choices.h"
#include "tests/races/race_frames.h"

namespace cistern {

class ExploredWorld {
 public:
  // The model knows no streams that are over and no checkpoints: scenarios of these leave it out.
  ExploredWorld(Choices& choices, std::size_t capacity, const std::string& options, bool with_model)
      : captures({.capacity_bytes = capacity,
                  .backing = Backing::none,
                  .races = RaceMode::collect,
                  .race_frames = race_frames()}),
        driver(captures.driver),
        allocator(
            {.driver = &captures.api,
             .options = AllocatorOptions::parse("oom_dump:off," + options, AllocatorOptions::parse("policy:classic"))}),
        choices_(choices),
        model_(capacity, AllocatorOptions::parse(options)),
        with_model_(with_model) {
    captures.api.host_clock = {&now, [](void* self) { return *static_cast<std::int64_t*>(self); }};
    EXPECT_EQ(driver.api().primary_ctx_retain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().ctx_set_current(context_), CUDA_SUCCESS);
    // One chunk of a history: worlds are made by the thousand.
    HistoryOptions history = HistoryOptions::always_on();
    history.max_entries = 1000;
    allocator.record_history(history);
    allocator.reset_peak_memory_stats();
    streams_.push_back(driver.create_stream());
  }
  ~ExploredWorld() {
    EXPECT_EQ(driver.api().ctx_set_current(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().primary_ctx_release(0), CUDA_SUCCESS);
  }
  ExploredWorld(const ExploredWorld&) = delete;
  ExploredWorld& operator=(const ExploredWorld&) = delete;

  // Stream 0 owns the blocks; others are made when they are first named.
  StreamHandle stream(std::size_t number) {
    while (streams_.size() <= number) streams_.push_back(driver.create_stream());
    return streams_[number];
  }

  // Takes a block and writes it on its stream; nullptr: out of memory, as the model predicts.
  void* take(std::size_t bytes, std::size_t owner = 0, const MemPool* pool = nullptr, int pool_number = 0) {
    void* block = nullptr;
    try {
      block = pool == nullptr ? allocator.allocate(bytes, stream(owner)) : pool->allocate(bytes, stream(owner));
    } catch (const OutOfMemoryError&) {
    }
    if (with_model_) {
      const auto number = static_cast<int>(owner) + 1;
      const auto expected =
          pool == nullptr ? model_.allocate(bytes, number) : model_.allocate_in(pool_number, bytes, number);
      EXPECT_EQ(block != nullptr, expected.has_value());
      if (block != nullptr && expected.has_value()) {
        const auto address = reinterpret_cast<std::uintptr_t>(block);
        if (base_ == 0) base_ = address - *expected;
        EXPECT_EQ(address - base_, *expected);
      }
    }
    if (block == nullptr) return block;
    owners_[block] = owner;
    sizes_[block] = bytes;
    if (!is_captured(owner)) {
      driver.launch(stream(owner), {}, {{block, bytes}}, std::chrono::milliseconds(1), [] {});
      model_.occupy(static_cast<int>(owner) + 1);
    }
    return block;
  }

  // Reads the block on another stream, ordered behind its owner's work by an event, and says so. The
  // owner's work is done first: what is left to step is the reader's.
  void use(void* block, std::size_t reader, bool record = true) {
    const std::size_t owner = owners_[block];
    order(reader, owner);
    run(owner);
    if (!is_captured(reader)) {
      driver.launch(stream(reader), {{block, sizes_[block]}}, {}, std::chrono::milliseconds(1), [] {});
      model_.occupy(static_cast<int>(reader) + 1);
    }
    if (!record) return;
    allocator.record_stream(block, stream(reader));
    if (with_model_) model_.record_stream(relative(block), static_cast<int>(reader) + 1);
  }

  void give(void* block, int last_used_on = -1) {
    if (last_used_on < 0) {
      allocator.deallocate(block);
    } else {
      allocator.deallocate(block, stream(static_cast<std::size_t>(last_used_on)));
      if (with_model_) model_.record_stream(relative(block), last_used_on + 1);
    }
    if (with_model_) model_.free(relative(block));
  }

  void empty_cache() {
    allocator.empty_cache();
    model_.empty_cache();
  }

  void run(std::size_t number) {
    driver.run_until_idle(stream(number));
    model_.finish_work(static_cast<int>(number) + 1);
  }

  // Any number of streams that have work step, in any order.
  void let_streams_step() {
    for (;;) {
      std::vector<std::size_t> busy;
      for (std::size_t i = 0; i < streams_.size(); ++i)
        if (ended_.count(i) == 0 && driver.api().stream_query(streams_[i]) == CUDA_ERROR_NOT_READY) busy.push_back(i);
      const std::size_t choice = choices_.choose(busy.size() + 1);
      if (choice == busy.size()) return;
      driver.step(streams_[busy[choice]]);
      model_.step(static_cast<int>(busy[choice]) + 1);
    }
  }

  // The stream is over; what it had queued goes on, and steps when something else needs it.
  void end_stream(std::size_t number) {
    allocator.release_stream(stream(number));
    driver.destroy_stream(stream(number));
    ended_.insert(number);
  }

  void destroy_without_a_word(std::size_t number) {
    driver.destroy_stream(stream(number));
    ended_.insert(number);
  }

  // A capture of the streams, recorded to the pool.
  void begin_capture(const std::vector<std::size_t>& captured) {
    for (std::size_t number : captured) {
      captures.begin_capture(stream(number), 1);
      model_.capture(static_cast<int>(number) + 1);
      captured_.insert(number);
    }
    allocator.begin_allocate_to_pool(0, {1, 0}, PoolFilter::capture(1));
    model_.begin(1, static_cast<int>(captured.front()) + 1);
  }
  void end_capture() {
    for (std::size_t number : captured_) {
      captures.end_capture(stream(number));
      model_.end_capture(static_cast<int>(number) + 1);
    }
    captured_.clear();
    allocator.end_allocate_to_pool(0, {1, 0});
    model_.end(1);
  }

  // The heap's invariants, the model's figures, the detector's silence.
  void judge() {
    EXPECT_NO_THROW(allocator.check());
    EXPECT_FALSE(captures.invalidated());
    if (with_model_) {
      EXPECT_EQ(allocator.memory_stats(), model_.stats());
    }
    for (const RaceReport& report : driver.race_reports()) ADD_FAILURE() << report.to_string() << kHowToSeeFrames;
  }

  model::ReferenceAllocator& model() { return model_; }

  CapturingDriver captures;
  SimulatedDriver& driver;
  std::int64_t now = 0;  // the host's time in nanoseconds
  CachingAllocator allocator;

 private:
  // `later` waits for what is queued on `earlier` by now, as a program's own event has it.
  void order(std::size_t later, std::size_t earlier) {
    if (is_captured(later) || is_captured(earlier)) return;
    CUevent event = nullptr;
    EXPECT_EQ(driver.api().event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().event_record(event, stream(earlier)), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().stream_wait_event(stream(later), event, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().event_destroy(event), CUDA_SUCCESS);
  }

  [[nodiscard]] bool is_captured(std::size_t number) const { return captured_.count(number) != 0; }
  [[nodiscard]] std::uint64_t relative(void* block) const { return reinterpret_cast<std::uintptr_t>(block) - base_; }

  Choices& choices_;
  model::ReferenceAllocator model_;
  const bool with_model_;
  CUcontext context_ = nullptr;
  std::vector<StreamHandle> streams_;
  std::set<std::size_t> ended_;
  std::set<std::size_t> captured_;
  std::map<void*, std::size_t> owners_;
  std::map<void*, std::size_t> sizes_;
  std::uint64_t base_ = 0;
};

}  // namespace cistern
