// Frees that wait in captures, beside a list of them in their order: which block a stream may have again.

#include "allocator/captured_frees.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr std::uint64_t kStreams = 3;
constexpr std::uint64_t kCaptures = 3;
constexpr std::uint64_t kNodes = 8;

class Program {
 public:
  Program() {
    for (std::uint64_t i = 0; i < kStreams; ++i) segments_[i].stream.id = 7 + i;
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i].segment = &segments_[i % kStreams];
  }

  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const std::uint64_t text = steps.byte();
    if (kind % 8 < 4)
      add(blocks_[kind / 8 % blocks_.size()], text % kCaptures, steps.byte());
    else if (kind % 8 == 4)
      forget(blocks_[kind / 8 % blocks_.size()]);
    else
      take(kind / 8 % kStreams, kind / 32 % kCaptures, text, kind % 8 == 5);
    compare();
  }
  // Behind all nodes each stream has all its own.
  void finish() {
    for (std::uint64_t stream = 0; stream < kStreams; ++stream)
      for (std::uint64_t capture = 0; capture < kCaptures; ++capture) take(stream, capture, ~std::uint64_t{0}, true);
    require(frees_.empty() && waiting_.empty(), "all are had in the end");
  }

 private:
  struct Free {
    Block* block;
    std::uint64_t capture;
    std::uint64_t nodes;  // a bit each
  };

  [[nodiscard]] std::uint64_t id_of(std::uint64_t stream) const { return segments_[stream].stream.id; }
  [[nodiscard]] bool is_of(const Free& free, std::uint64_t stream, std::uint64_t capture) const {
    return free.block->segment == &segments_[stream] && free.capture == capture;
  }
  static CUgraphNode node_of(std::uint64_t bit) { return reinterpret_cast<CUgraphNode>((1 + bit) * 64); }

  // A block is freed once. Of several streams that used it the same node may have stood last.
  void add(Block& block, std::uint64_t capture, std::uint64_t nodes) {
    if (std::any_of(waiting_.begin(), waiting_.end(), [&](const Free& free) { return free.block == &block; })) return;
    CapturePoint behind;
    behind.capture = capture;
    for (std::uint64_t bit = 0; bit < kNodes; ++bit)
      if ((nodes >> bit & 1) != 0) behind.nodes.insert(behind.nodes.end(), 1 + bit % 2, node_of(bit));
    frees_.add(&block, std::move(behind));
    waiting_.push_back({&block, capture, nodes % (1 << kNodes)});
  }
  void forget(const Block& block) {
    frees_.forget(&block);
    std::erase_if(waiting_, [&](const Free& free) { return free.block == &block; });
  }
  void take(std::uint64_t stream, std::uint64_t capture, std::uint64_t preceding, bool takes_all) {
    std::unordered_set<CUgraphNode> before;
    for (std::uint64_t bit = 0; bit < kNodes; ++bit)
      if ((preceding >> bit & 1) != 0) before.insert(node_of(bit));
    const Block* taken = nullptr;
    do {
      const auto first = std::find_if(waiting_.begin(), waiting_.end(), [&](const Free& free) {
        return is_of(free, stream, capture) && (free.nodes & ~preceding) == 0;
      });
      taken = frees_.take(id_of(stream), capture, before);
      require(taken == (first == waiting_.end() ? nullptr : first->block), "the first that the stream comes after");
      if (taken != nullptr) waiting_.erase(first);
    } while (takes_all && taken != nullptr);
  }
  void compare() const {
    require(frees_.empty() == waiting_.empty(), "whether any waits");
    for (std::uint64_t stream = 0; stream < kStreams; ++stream)
      for (std::uint64_t capture = 0; capture < kCaptures; ++capture)
        require(frees_.has(id_of(stream), capture) ==
                    std::any_of(waiting_.begin(), waiting_.end(),
                                [&](const Free& free) { return is_of(free, stream, capture); }),
                "for which stream and capture some wait");
  }

  std::array<Segment, kStreams> segments_;
  std::array<Block, 16> blocks_;
  CapturedFrees frees_;
  std::vector<Free> waiting_;  // in their order
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program program;
  for (Steps steps(data, size); steps.more();) program.step(steps);
  program.finish();
  return 0;
}
