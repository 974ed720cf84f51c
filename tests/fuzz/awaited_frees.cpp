// Frees of three streams that wait for events, of up to two streams each, and are asked as one, beside a list of them
// in that order. Events are recorded late, become done or fail, and are used again; each of them is destroyed in the
// end, once. Blocks are known by their addresses alone now and then.

#include "allocator/awaited_frees.h"

#include "tests/fuzz/driver_events.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace cistern {
namespace {

class Program {
 public:
  Program(Events& events, EventPool& pool) : events_(events), pool_(pool) {
    for (AwaitedFrees& frees : frees_) frees.set_promised(AwaitedFrees::kMost);
  }

  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    switch (kind % 8) {
      case 0:
      case 1:
      case 2:
        return add(kind / 8 % frees_.size(), kind / 32, steps.byte());
      case 3:
        return record(steps.byte());
      case 4:
        if (!entries_.empty())
          if (const CUevent event = entries_[steps.byte() % entries_.size()].event; event != nullptr)
            events_.results[event] = result_from(kind / 8);
        return;
      default:
        poll(kind / 8);
    }
  }
  void finish() {
    for (auto& [event, result] : events_.results) result = CUDA_SUCCESS;
    while (!entries_.empty()) {
      record(0);
      poll(1);
    }
  }

 private:
  struct Known {
    std::size_t list = 0;
    std::uint64_t stream = 0;
    std::uint64_t number = 0;
    AwaitedFrees::Recording* recording = nullptr;
    CUevent event = nullptr;
    [[nodiscard]] Block* block() const { return recording->block; }
  };

  void add(std::size_t list, std::uint64_t stream, std::uint64_t text) {
    AwaitedFrees& frees = frees_[list];
    const auto in_list =
        std::count_if(entries_.begin(), entries_.end(), [&](const Known& of) { return of.list == list; });
    require(frees.room() == AwaitedFrees::kMost - static_cast<std::size_t>(in_list), "how much room there is");
    const std::size_t events = 1 + text / 64 % 2;
    if (frees.room() < events) return;
    Block& block = blocks_.emplace_back();
    block.address = 512 * blocks_.size();
    AwaitedFrees::Recording& recording = recordings_.emplace_back(AwaitedFrees::Recording{block.address, &block, {}});
    frees.begin(&block);
    for (std::size_t i = 0; i < events; ++i) add_event(list, (stream + i) % 8, recording);
    for (std::size_t i = 0; i < events && text % 4 != 0; ++i) record(text / 4);
    compare();
  }
  void add_event(std::size_t list, std::uint64_t stream, AwaitedFrees::Recording& recording) {
    const Known known{list, stream, next_number_++, &recording, nullptr};
    frees_[list].add(0, {nullptr, stream}, recording, known.number, known.number);
    ++recording.block->pending_events;
    entries_.push_back(known);
    require(entry_of(known).event == nullptr, "an event that was just asked for is being recorded");
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Known& a, const Known& b) { return a.stream > b.stream; });
  }
  // One that is being recorded is found by who records it.
  [[nodiscard]] const AwaitedFrees::Entry& entry_of(const Known& known) {
    const std::span<const AwaitedFrees::Entry> entries = frees_[known.list].entries();
    const auto found = std::find_if(entries.begin(), entries.end(), [&](const AwaitedFrees::Entry& entry) {
      return entry.address == known.block()->address && entry.stream.id == known.stream;
    });
    require(found != entries.end(), "a free that waits is there");
    require((frees_[known.list].find(*known.recording, {nullptr, known.stream}) == &*found) == (known.event == nullptr),
            "who records an event finds its free");
    return *found;
  }
  void record(std::uint64_t text) {
    for (Known& known : entries_)
      if (known.event == nullptr) return record(known, text);
  }
  void record(Known& known, std::uint64_t text) {
    AwaitedFrees& frees = frees_[known.list];
    const bool has_idle = frees.has_idle_event();
    known.event = frees.take_idle_event();
    require((known.event != nullptr) == has_idle, "whether an event is at hand");
    if (known.event == nullptr) require(pool_.acquire(&known.event) == CUDA_SUCCESS, "there is an event");
    for (const Known& other : entries_)
      require(&other == &known || other.event != known.event, "nobody else uses an event that is taken");
    events_.results[known.event] = result_from(text);
    AwaitedFrees::Entry* const entry = frees.find(*known.recording, {nullptr, known.stream});
    require(entry != nullptr, "who records an event finds its free");
    entry->event = known.event;
    entry->recording = nullptr;
  }

  // Some of the blocks that are complete may not be taken, which ends the round.
  void poll(std::uint64_t kind) {
    const std::size_t most = kind % 2 == 0 ? kind / 2 % 4 : 100;
    if (kind % 8 == 7) know_blocks();
    std::vector<std::pair<std::size_t, const Block*>> completed;
    std::array<AwaitedFrees*, 3> all = {frees_.data(), &frees_[1], &frees_[2]};
    events_.asked.clear();
    const auto complete = [&](std::size_t list, const AwaitedFrees::Entry& entry) {
      if (completed.size() == most) return false;
      completed.emplace_back(list, entry.block);
      // In the middle of a round, too.
      if (kind % 8 == 3) know_blocks();
      require(frees_[list].has_others(entry) == (entry.block->pending_events != 1), "what else a block waits for");
      if (--entry.block->pending_events == 0) frees_[list].end(entry.block);
      return true;
    };
    const CUresult result = AwaitedFrees::Merged<3>(all).poll(
        events_.api, pool_, [](const AwaitedFrees::Entry&) { return false; }, complete);
    std::vector<std::pair<std::size_t, const Block*>> expected;
    std::vector<CUevent> asked;
    std::vector<Known> left;
    std::optional<std::uint64_t> behind;
    CUresult end = CUDA_SUCCESS;
    for (const Known& known : entries_) {
      CUresult answer = CUDA_ERROR_NOT_READY;
      if (end == CUDA_SUCCESS && behind != known.stream && known.event != nullptr) {
        asked.push_back(known.event);
        answer = events_.result_of(known.event);
      }
      if (answer == CUDA_SUCCESS && expected.size() < most) {
        expected.emplace_back(known.list, known.block());
        continue;
      }
      left.push_back(known);
      if (end != CUDA_SUCCESS) continue;
      if (answer == CUDA_SUCCESS)
        end = CUDA_ERROR_NOT_READY;
      else if (answer != CUDA_ERROR_NOT_READY)
        end = answer;
      else
        behind = known.stream;
    }
    entries_ = std::move(left);
    require(events_.asked == asked, "which events of several streams are asked, in which order");
    require(completed == expected, "which frees are complete, in which order");
    require(result == end, "what ended the round of several streams");
    compare();
  }
  // As they are after steps that were followed.
  void know_blocks() {
    for (AwaitedFrees& frees : frees_) require(frees.know_blocks(), "blocks that wait are known by their addresses");
  }
  void compare() {
    for (std::size_t list = 0; list < frees_.size(); ++list) {
      std::vector<const Block*> expected;
      for (const Known& known : entries_) {
        if (known.list != list) continue;
        expected.push_back(known.block());
        const AwaitedFrees::Entry& entry = entry_of(known);
        require(entry.event == known.event && entry.stream.id == known.stream && entry.number == known.number,
                "a free that waits is what was added");
      }
      std::vector<const Block*> found;
      for (const AwaitedFrees::Entry& entry : frees_[list].entries()) found.push_back(entry.block);
      require(found == expected && frees_[list].empty() == expected.empty(), "what a stream waits for, in order");
      const std::set<const Block*> blocks(expected.begin(), expected.end());
      const std::span<Block* const> waiting = frees_[list].blocks();
      require(std::set<const Block*>(waiting.begin(), waiting.end()) == blocks && waiting.size() == blocks.size(),
              "which blocks wait, once each");
    }
  }

  Events& events_;
  EventPool& pool_;
  std::array<AwaitedFrees::Storage, 3> storage_{};
  std::array<AwaitedFrees, 3> frees_{AwaitedFrees(storage_[0]), AwaitedFrees(storage_[1]), AwaitedFrees(storage_[2])};
  std::deque<Block> blocks_;
  std::deque<AwaitedFrees::Recording> recordings_;
  std::vector<Known> entries_;  // in the order in which they are asked
  std::uint64_t next_number_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Events events;
  EventPools pools(events.api, 1);
  Program program(events, pools.of(0));
  for (Steps steps(data, size); steps.more();) program.step(steps);
  program.finish();
  return 0;
}
