// How many host blocks do eight threads allocate and free in a second, without a driver call? The goal is 200,000.
//
// Each thread keeps 64 blocks of mixed sizes (64 bytes to 4 MiB, most of them small) and replaces a random one at a
// time. Five rounds; the table has the median and the slowest. Driver calls are counted during the rounds.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace cistern {
namespace {

constexpr std::size_t kThreads = 8;
constexpr std::size_t kKept = 64;
constexpr std::size_t kPairs = 100'000;  // a thread and round

class Sizes {
 public:
  explicit Sizes(std::uint32_t seed) : state_(seed) {}
  std::uint32_t next() {
    state_ = state_ * 1664525 + 1013904223;
    return state_ >> 8;
  }
  std::size_t bytes() {
    const std::uint32_t octave = next() % (next() % 16 == 0 ? 16 : 10);
    return (std::size_t{64} << octave) + next() % (std::size_t{64} << octave);
  }

 private:
  std::uint32_t state_;
};

void replace(CachingAllocator& allocator, std::vector<void*>& kept, Sizes& sizes, std::size_t pairs) {
  for (std::size_t i = 0; i < pairs; ++i) {
    void*& block = kept[sizes.next() % kKept];
    allocator.deallocate_host(block);
    block = allocator.allocate_host(sizes.bytes());
  }
}

}  // namespace
}  // namespace cistern

int main() {
  using namespace cistern;
  SimulatedDriver driver({.capacity_bytes = std::size_t{4} << 30, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api()});
  // Enough of each kind that no round meets a miss.
  std::vector<void*> reserve;
  for (int i = 0; i < 512; ++i) reserve.push_back(allocator.allocate_host(std::size_t{1} << 20));
  for (int i = 0; i < 64; ++i) reserve.push_back(allocator.allocate_host(std::size_t{64} << 20));
  for (void* block : reserve) allocator.deallocate_host(block);

  std::barrier together(kThreads + 1);
  constexpr std::size_t rounds = 5;
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      Sizes sizes(static_cast<std::uint32_t>(thread) + 1);
      std::vector<void*> kept(kKept, nullptr);
      replace(allocator, kept, sizes, kPairs / 10);
      for (std::size_t round = 0; round < rounds; ++round) {
        together.arrive_and_wait();
        replace(allocator, kept, sizes, kPairs);
        together.arrive_and_wait();
      }
      for (void* block : kept) allocator.deallocate_host(block);
    });
  std::vector<double> rates;
  std::uint64_t calls = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    together.arrive_and_wait();
    const std::uint64_t before = driver.calls();
    const auto begin = std::chrono::steady_clock::now();
    together.arrive_and_wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    calls += driver.calls() - before;
    rates.push_back(static_cast<double>(kThreads * kPairs) / took.count());
  }
  for (std::thread& thread : threads) thread.join();
  std::sort(rates.begin(), rates.end());
  fmt::print("| threads | allocations a second (median) | slowest of {} rounds | driver calls |\n", rounds);
  fmt::print("| ---: | ---: | ---: | ---: |\n");
  fmt::print("| {} | {:.0f} | {:.0f} | {} |\n", kThreads, rates[rounds / 2], rates.front(), calls);
  return 0;
}
