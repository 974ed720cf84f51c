#pragma once

// Which streams may serve without the heap's lock, plainly: for the target that compares StreamHeapArena with it. How
// many may be awake is WakeCounts' matter, which has a target of its own.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/heap_mutex.h"
#include "allocator/stream_heap.h"
#include "allocator/wake_counts.h"
#include "tests/fuzz/property.h"

namespace cistern {

using HeapSet = std::set<StreamHeap*, std::less<>>;  // by place in memory

// Who may serve without the lock. A stream wakes that asks a second time, if one more may, with the next lock. Those
// that did nothing alone since it was looked sleep, if others are more than a few; so do those that are too many.
class PlainWaking {
 public:
  void lock() {
    locked_.merge(waking_);
    std::erase_if(locked_, [this](StreamHeap* heap) {
      Known& known = of(heap);
      if (known.state == State::wants_to_wake) known.state = State::awake;
      return known.state == State::asleep;
    });
  }
  void request(StreamHeap& heap) {
    Known& known = of(&heap);
    const bool may_wake = heap.home == nullptr && !known.is_over;
    if (may_wake && known.state == State::asleep && std::exchange(known.has_asked, true)) wake(heap);
    if (counts_.note_request(awake())) look();
  }
  // Of those that serve alone.
  bool serve_alone(StreamHeap& heap) {
    Known& known = of(&heap);
    known.served_alone = known.served_alone || known.state == State::awake;
    return known.state == State::awake;
  }
  void end(StreamHeap& heap) {
    Known& known = of(&heap);
    if (std::exchange(known.is_over, true)) return;
    if (known.state != State::asleep) sleep(known);
    counts_.forget(known.refused_at);
  }
  // The storage is another stream's.
  void begin(StreamHeap& heap) { of(&heap).is_over = of(&heap).has_asked = false; }

  void compare(const StreamHeap& heap) {
    const Known& known = of(&heap);
    require(heap.is_awake == (known.state == State::awake), "who is awake");
    require(heap.wants_to_wake == (known.state == State::wants_to_wake), "who wakes next");
    require(heap.ledger.is_apart == (known.state != State::asleep), "who counts apart");
    require(heap.was_asked == known.has_asked, "who has asked since it fell asleep");
    require(heap.has_served_alone == known.served_alone, "who has served alone since it was looked");
  }
  void compare(const HeapMutex& mutex) const {
    require(mutex.awake() == awake(), "how many are locked");
    require(std::equal(locked_.begin(), locked_.end(), mutex.streams().begin(), mutex.streams().end()),
            "who is locked, by place in memory");
  }

 private:
  enum class State { asleep, wants_to_wake, awake };
  struct Known {
    State state = State::asleep;
    bool has_asked = false;
    bool served_alone = false;
    bool is_over = false;
    std::uint64_t refused_at = 0;
  };

  [[nodiscard]] Known& of(const StreamHeap* heap) { return known_[heap]; }
  [[nodiscard]] std::size_t awake() const { return locked_.size() + waking_.size(); }
  void wake(StreamHeap& heap) {
    Known& known = of(&heap);
    if (!counts_.has_room(awake())) {
      if (counts_.refuse(known.refused_at)) look();
      return;
    }
    counts_.forget(known.refused_at);
    if (counts_.note_wake()) look();
    known.state = State::wants_to_wake;
    known.served_alone = true;
    if (!locked_.contains(&heap)) waking_.insert(&heap);
  }
  static void sleep(Known& known) {
    known.state = State::asleep;
    known.has_asked = false;
  }
  void look() {
    const bool are_few = locked_.size() < 8;
    std::vector<Known*> busy;
    for (StreamHeap* heap : locked_)
      if (are_few || of(heap).served_alone) busy.push_back(&of(heap));
    const std::size_t most = counts_.look(awake(), busy.size() + waking_.size());
    if (are_few) return;
    busy.resize(std::min(busy.size(), most - std::min(most, waking_.size())));
    for (StreamHeap* heap : locked_) {
      Known& known = of(heap);
      known.served_alone = false;
      const bool stays = std::find(busy.begin(), busy.end(), &known) != busy.end();
      if (!stays && known.state != State::asleep) sleep(known);
    }
  }

  WakeCounts counts_;
  std::unordered_map<const StreamHeap*, Known> known_;
  HeapSet locked_;
  HeapSet waking_;  // with the next lock
};

}  // namespace cistern
