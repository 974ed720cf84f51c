#pragma once

// Threads that allocate and free while somebody looks, each recognisable in what a history says of it.

#include <cistern/allocator.h>
#include <cistern/snapshot.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace cistern {

// However the machine divides its time, the threads do no more than they are allowed: a history that is
// read from its beginning must have an end.
class Load {
 public:
  // Blocks of at most so many bytes, some of which `other` uses too. Does nothing at first.
  Load(CachingAllocator& allocator, StreamHandle other, std::size_t most_bytes);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  // Allows some more steps, and waits until some were done: the rest are made meanwhile.
  void go_on();
  void go_on_for_ever() { allowed_ = ~std::uint64_t{0}; }

 private:
  template <int number>
  void run(CachingAllocator& allocator, StreamHandle other, std::size_t most_bytes);

  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<std::uint64_t> allowed_{0};
  std::vector<std::thread> threads_;
};

// What of one device's snapshot is not of one moment: by its own sums, by its statistics, or by its
// history, which must be there from its beginning. "": nothing.
[[nodiscard]] std::string fault_of_moment(const Snapshot& snapshot);
// The first entry or block that is not as one of the threads of a load made it: with its tag, its text and
// its stack. Requires: history of everything. "": there is none.
[[nodiscard]] std::string fault_of_entries(const Snapshot& snapshot);

}  // namespace cistern
