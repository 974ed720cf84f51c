// Freed blocks of a heap that wait for events, beside lists of them in the order in which they are asked. Events are
// recorded, become done or fail, are waited for in batches, and are used again; each of them is destroyed in the end,
// once.

#include "allocator/pending_frees.h"

#include "tests/fuzz/driver_events.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr int kDevices = 2;
constexpr std::uint64_t kStreamIds = 4;
constexpr std::size_t kBlocks = 24;

class Program {
 public:
  Program(Events& events, EventPools& pools) : events_(events), pools_(pools) {}

  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    switch (kind % 8) {
      case 0:
      case 1:
      case 2:
        add(kind / 8, steps.byte());
        break;
      case 3:
        if (!events_in_use_.empty()) events_.results[pick_event(steps.byte())] = result_from(kind / 8);
        break;
      case 4:
        if (kind / 8 % 4 == 3)
          look();
        else
          poll();
        break;
      case 5:
        if (kind / 8 % 2 == 0)
          finish_firsts(kind / 16 % 3);
        else
          promise(kind / 16);
        break;
      case 6:
        take(kind / 8, steps.byte());
        break;
      default:
        end_batch(kind / 8);
    }
    compare();
  }
  void finish() {
    for (auto& [event, result] : events_.results) result = CUDA_SUCCESS;
    while (!batches_.empty()) end_batch(2);
    poll();
    require(pending_.empty(), "all events are done in the end");
  }

 private:
  using Entry = PendingFrees::Entry;
  using Key = std::pair<std::uint64_t, int>;  // what a queue is visited by
  struct Batch {
    PendingFrees::Batch batch;
    std::deque<Entry> entries;
  };

  static Key key_of(const Entry& entry) { return {~entry.stream.id, entry.device}; }
  static std::tuple<CUevent, int, std::uint64_t, const Block*> all_of(const Entry& entry) {
    return {entry.event, entry.device, entry.stream.id, entry.block};
  }
  CUevent pick_event(std::uint64_t which) const {
    return *std::next(events_in_use_.begin(), static_cast<std::ptrdiff_t>(which % events_in_use_.size()));
  }

  void add(std::uint64_t stream, std::uint64_t which) {
    Block& block = blocks_[which % kBlocks];
    Entry entry{nullptr, static_cast<int>(stream / kStreamIds % kDevices), {nullptr, stream % kStreamIds}, &block};
    entry.event = pending_.take_idle_event(entry.device);
    if (entry.event == nullptr)
      require(pools_.of(entry.device).acquire(&entry.event) == CUDA_SUCCESS, "there is an event");
    require(events_in_use_.insert(entry.event).second, "nobody else uses an event that is taken");
    events_.results[entry.event] = result_from(which / 32 + stream);
    ++block.pending_events;
    if (promised_ != 0 && which % 2 == 0) {
      --promised_;
      pending_.add_promised(entry);
    } else {
      pending_.add(entry);
    }
    queues_[key_of(entry)].push_back(entry);
  }
  void promise(std::uint64_t places) {
    pending_.promise(places);
    promised_ += places;
  }
  // True: it was the block's last.
  bool done(const Entry& entry) {
    require(events_in_use_.erase(entry.event) == 1, "an event ends once");
    known_done_.erase(entry.event);
    const auto waits_for = [&](const Entry& other) { return other.block == entry.block; };
    const auto is_in = [&](const auto& entries) { return std::any_of(entries.begin(), entries.end(), waits_for); };
    return std::none_of(queues_.begin(), queues_.end(), [&](const auto& queue) { return is_in(queue.second); }) &&
           std::none_of(batches_.begin(), batches_.end(), [&](const Batch& batch) { return is_in(batch.entries); });
  }
  void poll() {
    std::vector<const Block*> completed;
    events_.asked.clear();
    const CUresult result = pending_.poll([&](Block* block) { completed.push_back(block); });
    std::vector<const Block*> expected;
    std::vector<CUevent> asked;
    CUresult end = CUDA_SUCCESS;
    for (auto& [key, queue] : queues_) {
      while (!queue.empty() && end == CUDA_SUCCESS) {
        const Entry entry = queue.front();
        const bool is_known = known_done_.contains(entry.event);
        if (!is_known) asked.push_back(entry.event);
        const CUresult answer = is_known ? CUDA_SUCCESS : events_.result_of(entry.event);
        if (answer == CUDA_ERROR_NOT_READY) break;
        if (answer != CUDA_SUCCESS) {
          end = answer;
          break;
        }
        queue.pop_front();
        if (done(entry)) expected.push_back(entry.block);
      }
      if (end != CUDA_SUCCESS) break;
    }
    require(events_.asked == asked, "which events are asked, in which order");
    require(completed == expected, "which blocks are complete, in which order");
    require(result == end, "what ended the round");
  }
  // By who may not end any: what is found done is not asked for again.
  void look() {
    std::vector<CUevent> asked;
    bool has_done = false;
    for (auto& [key, queue] : queues_) {
      if (queue.empty()) continue;
      const CUevent event = queue.front().event;
      CUresult answer = CUDA_SUCCESS;
      if (!known_done_.contains(event)) {
        asked.push_back(event);
        answer = events_.result_of(event);
      }
      if (answer == CUDA_SUCCESS) known_done_.insert(event);
      has_done = answer != CUDA_ERROR_NOT_READY;
      if (has_done) break;
    }
    events_.asked.clear();
    require(pending_.has_done() == has_done, "whether who ends frees has something to do");
    require(events_.asked == asked, "which events are asked by who ends none");
    for (std::uint64_t id = 0; id < kStreamIds; ++id) {
      const auto queue = queues_.find({~id, 0});
      require(pending_.has_of(0, {nullptr, id}) == (queue != queues_.end() && !queue->second.empty()),
              "for which streams some wait");
    }
  }
  // As by who asks without the lock.
  void finish_firsts(std::size_t skip) {
    std::array<Entry, 3> firsts;
    const std::size_t count = pending_.firsts(skip, firsts);
    std::size_t place = 0;
    for (auto& [key, queue] : queues_) {
      if (queue.empty()) continue;
      if (place >= skip && place - skip < firsts.size()) {
        const Entry entry = queue.front();
        require(place - skip < count && all_of(firsts[place - skip]) == all_of(entry), "the first of each queue");
        if (events_.result_of(entry.event) == CUDA_SUCCESS) {
          queue.pop_front();
          const bool is_last = done(entry);
          require(pending_.finish_first(firsts[place - skip]) == (is_last ? entry.block : nullptr),
                  "whether a block is complete");
        }
      }
      ++place;
    }
    require(count == std::min(firsts.size(), place - std::min(place, skip)), "how many queues there are");
    pending_.drop_ended();
  }

  // All, or those of some blocks.
  void take(std::uint64_t kind, std::uint64_t blocks) {
    if (batches_.size() == 3) return;
    Batch& batch = batches_.emplace_front();
    std::vector<Block*> of;
    for (std::size_t i = 0; i < kBlocks; ++i)
      if (blocks >> i % 8 & 1) of.push_back(&blocks_[i]);
    const bool takes_all = kind % 2 == 0;
    if (takes_all)
      pending_.take_all(batch.batch);
    else
      pending_.take(of, batch.batch);
    for (auto& [key, queue] : queues_) {
      const auto goes = [&](const Entry& entry) {
        return takes_all || std::find(of.begin(), of.end(), entry.block) != of.end();
      };
      std::copy_if(queue.begin(), queue.end(), std::back_inserter(batch.entries), goes);
      std::erase_if(queue, goes);
    }
  }
  void end_batch(std::uint64_t kind) {
    if (batches_.empty()) return;
    const auto batch = std::next(batches_.begin(), static_cast<std::ptrdiff_t>(kind / 4 % batches_.size()));
    while (!batch->entries.empty() && (kind % 4 == 2 || kind % 4 == 3)) {
      const Entry entry = batch->entries.front();
      batch->entries.pop_front();
      require(all_of(*batch->batch.first) == all_of(entry), "a batch is in the order of polling");
      require(pending_.finish_first(batch->batch) == (done(entry) ? entry.block : nullptr),
              "whether a block is complete");
      if (kind % 4 == 3) return;
    }
    pending_.put_back(batch->batch);
    while (!batch->entries.empty()) {
      queues_[key_of(batch->entries.back())].push_front(batch->entries.back());
      batch->entries.pop_back();
    }
    batches_.erase(batch);
  }

  void compare() const {
    std::size_t queued = 0;
    std::vector<std::tuple<CUevent, int, std::uint64_t, const Block*>> expected;
    for (const Batch& batch : batches_)
      for (const Entry& entry : batch.entries) expected.push_back(all_of(entry));
    for (const auto& [key, queue] : queues_) {
      queued += queue.size();
      for (const Entry& entry : queue) expected.push_back(all_of(entry));
    }
    require(pending_.size() == queued && pending_.empty() == (queued == 0), "how many are queued");
    auto all = expected;
    all.clear();
    pending_.for_each([&](const Entry& entry) { all.push_back(all_of(entry)); });
    require(all == expected, "all entries, in the order of polling");
    expected.erase(expected.begin(), expected.end() - static_cast<std::ptrdiff_t>(queued));
    all.clear();
    pending_.for_each_queued([&](const Entry& entry) { all.push_back(all_of(entry)); });
    require(all == expected, "all that nobody waits for");
  }

  Events& events_;
  EventPools& pools_;
  PendingFrees pending_{events_.api, pools_, 0};
  std::array<Block, kBlocks> blocks_{};
  std::map<Key, std::deque<Entry>> queues_;
  std::list<Batch> batches_;  // newest first
  std::set<CUevent> events_in_use_;
  std::set<CUevent> known_done_;  // of those, as somebody was told
  std::uint64_t promised_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Events events;
  EventPools pools(events.api, kDevices);
  Program program(events, pools);
  for (Steps steps(data, size); steps.more();) program.step(steps);
  program.finish();
  return 0;
}
