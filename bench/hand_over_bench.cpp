// What does it cost to free what another thread allocated? Two threads, each on a stream of its own,
// hand every block to the other, which frees it. Beside it the same threads, allocator and queues with
// one std::mutex held around each allocation and each free: what a program would have that brought
// its own lock to an allocator without threads. The queues, which are part of both, take no lock.
// Time is of one allocation or one free on one thread.

#include <array>
#include <atomic>
#include <mutex>

#include "bench/comparison.h"
#include "bench/hot_heap.h"
#include "bench/patience.h"
#include "bench/workers.h"

namespace cistern {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kBlocks = 1000;  // a thread and round
constexpr int kRounds = 101;

// From one thread to one other.
class Queue {
 public:
  bool push(void* block) {
    if (tail_ - head_seen_ == kPlaces && tail_ - (head_seen_ = head_.load(std::memory_order_acquire)) == kPlaces)
      return false;
    places_[tail_ % kPlaces] = block;
    published_.store(++tail_, std::memory_order_release);
    return true;
  }
  // Null if there is none.
  void* pop() {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    if (head == published_seen_ && head == (published_seen_ = published_.load(std::memory_order_acquire)))
      return nullptr;
    void* block = places_[head % kPlaces];
    head_.store(head + 1, std::memory_order_release);
    return block;
  }

 private:
  static constexpr std::size_t kPlaces = 256;
  static constexpr std::size_t kLine = 64;
  std::array<void*, kPlaces> places_{};
  alignas(kLine) std::size_t tail_ = 0;  // the sender's
  std::size_t head_seen_ = 0;
  alignas(kLine) std::atomic<std::size_t> published_{0};
  alignas(kLine) std::atomic<std::size_t> head_{0};
  std::size_t published_seen_ = 0;  // the receiver's
};

template <class Heap>
struct Locked {
  Heap heap;
  std::mutex* mutex;
  void* allocate(std::size_t bytes) {
    const std::lock_guard lock(*mutex);
    return heap.allocate(bytes);
  }
  void release(void* pointer) {
    const std::lock_guard lock(*mutex);
    heap.release(pointer);
  }
};

// One thread's part: sends `kBlocks` and frees as many.
template <class Heap>
void hand_over(Heap heap, Queue& outgoing, Queue& incoming) {
  std::size_t received = 0;
  const auto receive = [&] {
    void* block = incoming.pop();
    if (block == nullptr) return false;
    heap.release(block);
    ++received;
    return true;
  };
  for (std::size_t sent = 0; sent < kBlocks; ++sent) {
    void* block = heap.allocate(kBytes);
    for (Patience patience; !outgoing.push(block);)
      if (!receive()) patience.spend();
    receive();
  }
  for (Patience patience; received < kBlocks;) {
    if (receive())
      patience.renew();
    else
      patience.spend();
  }
}

struct Threads {
  Workers workers{2};
  std::array<Queue, 2> queues{};
  std::mutex one_lock;

  template <class HeapOf>
  TimedWay way(HeapOf heap_of) {
    return [this, heap_of] {
      return workers.run(2, [&](std::size_t i) { hand_over(heap_of(i), queues[i], queues[1 - i]); }) / (2 * kBlocks);
    };
  }
  template <class HeapOf>
  TimedWay locked_way(HeapOf heap_of) {
    return way([this, heap_of](std::size_t i) { return Locked<decltype(heap_of(i))>{heap_of(i), &one_lock}; });
  }
};

void hand_over_between_threads(benchmark::State& state) {
  HotHeap off(Ring::off);
  HotHeap on(Ring::on);
  const std::array<Stream, 2> streams = {Stream::create(), Stream::create()};
  Threads threads;
  std::vector<NamedWay> ways;
  for (auto [who, heap] : {std::pair("cistern", &off), std::pair("history", &on)}) {
    const auto heap_of = [heap = heap, &streams](std::size_t i) { return heap->on_stream(streams[i]); };
    ways.push_back({std::string(who) + "_ns", threads.way(heap_of)});
    ways.push_back({std::string(who) + "_one_lock_ns", threads.locked_way(heap_of)});
  }
  if (const Peer* peer = process_peer()) {
    const auto heap_of = [peer](std::size_t i) { return peer->on_stream(static_cast<unsigned>(i)); };
    ways.push_back({"peer_ns", threads.way(heap_of)});
    ways.push_back({"peer_one_lock_ns", threads.locked_way(heap_of)});
  }
  compare(state, kRounds, std::move(ways));
  state.counters["dropped_rounds"] = static_cast<double>(threads.workers.dropped());
}

BENCHMARK(hand_over_between_threads)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
