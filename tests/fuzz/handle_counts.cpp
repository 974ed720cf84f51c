// What is kept of handles beside maps: how many of each size there are, since when each is unused, and the nodes that
// trees of them are made of, whose bytes are nobody else's.

#include "allocator/handle_counts.h"

#include "allocator/handle_ages.h"
#include "allocator/spare_nodes.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

namespace cistern {
namespace {

// Of two runs, which are joined and parted.
class CountsProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const std::size_t of = kind / 4 % 2;
    if (kind % 4 < 2) {
      const auto size_class = static_cast<int>(steps.byte() % HandleCounts::kClasses);
      const std::int32_t count = static_cast<std::int32_t>(kind / 8) - 16;
      counts_[of].add(size_class, count);
      add(of, size_class, count);
    } else {
      const bool is_sum = kind % 4 == 2;
      const HandleCounts other = counts_[1 - of];
      if (is_sum)
        counts_[of] += other;
      else
        counts_[of] -= other;
      for (const auto& [size_class, count] : std::map<int, std::int64_t>(expected_[1 - of]))
        add(of, size_class, is_sum ? count : -count);
      // No run has as many.
      for (const auto& [size_class, count] : expected_[of])
        if (count > 1'000'000 || count < -1'000'000) return reset();
    }
    compare();
  }

 private:
  void add(std::size_t of, int size_class, std::int64_t count) {
    if ((expected_[of][size_class] += count) == 0) expected_[of].erase(size_class);
  }
  void reset() {
    counts_ = {};
    expected_ = {};
  }
  void compare() const {
    for (std::size_t of = 0; of < counts_.size(); ++of) {
      std::map<int, std::int64_t> found;
      int last = -1;
      counts_[of].for_each([&](int size_class, std::int32_t count) {
        require(size_class > last, "classes are visited in order");
        found[last = size_class] = count;
      });
      require(found == expected_[of], "how many of each class there are");
      HandleCounts::Classes classes = 0;
      for (const auto& [size_class, count] : expected_[of]) classes |= HandleCounts::Classes{1} << size_class;
      require(counts_[of].classes() == classes, "which classes there are");
      for (int size_class = 0; size_class < HandleCounts::kClasses; ++size_class)
        require(counts_[of].of(size_class) == (found.contains(size_class) ? found[size_class] : 0), "how many of one");
    }
    require((counts_[0] == counts_[1]) == (expected_[0] == expected_[1]), "whether two have the same");
  }

  std::array<HandleCounts, 2> counts_;
  std::array<std::map<int, std::int64_t>, 2> expected_;
};

class AgesProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const auto handle = static_cast<PageTable::Handle>(kind / 8 % unused_since_.size());
    std::optional<std::int64_t>& unused_since = unused_since_[static_cast<std::size_t>(handle)];
    switch (kind % 8) {
      case 0:
        ages_.keep(kind >= 64);
        if (kind >= 64 && !are_kept_) unused_since_.assign(unused_since_.size(), std::nullopt);
        are_kept_ = kind >= 64;
        break;
      case 1:
        if (unused_since_.size() < 30) unused_since_.emplace_back();
        ages_.provide(unused_since_.size());
        break;
      case 2:
      case 3:
        ages_.used(handle);
        unused_since.reset();
        break;
      default:
        now_ += static_cast<std::int64_t>(kind % 3);
        ages_.looked_at(handle, now_);
        if (!unused_since) unused_since = now_;
    }
    require(ages_.are_kept() == are_kept_, "whether ages are kept");
    const std::int64_t time = now_ - static_cast<std::int64_t>(steps.byte() % 8);
    for (std::size_t i = 0; i < unused_since_.size(); ++i)
      require(ages_.is_unused_since(static_cast<PageTable::Handle>(i), time) ==
                  (unused_since_[i] && *unused_since_[i] <= time),
              "since when a handle is unused");
  }

 private:
  HandleAges ages_ = [] {
    HandleAges ages;
    ages.provide(1);
    return ages;
  }();
  std::vector<std::optional<std::int64_t>> unused_since_ = std::vector<std::optional<std::int64_t>>(1);
  bool are_kept_ = false;
  std::int64_t now_ = 0;
};

class NodesProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    if (kind % 8 == 0) {
      nodes_.provide_in_all(kind * 8);
    } else if (kind % 8 < 5) {
      for (std::uint64_t i = 0; i <= kind / 8; ++i) take(std::size_t{1} << kind / 8 % 8);
    } else {
      for (std::uint64_t i = steps.byte(); i != 0 && !taken_.empty(); --i) give_back(i);
    }
  }
  void finish() {
    while (!taken_.empty()) give_back(0);
  }

 private:
  static constexpr std::size_t kLargest = 64;

  void take(std::size_t bytes) {
    void* node = nullptr;
    try {
      node = nodes_.allocate(bytes, bytes);
    } catch (const std::logic_error&) {
      return require(bytes > kLargest, "a node that is not too large is had");
    }
    require(bytes <= kLargest, "one that is too large is refused");
    require(reinterpret_cast<std::uintptr_t>(node) % bytes == 0, "a node lies where it was asked for");
    std::memset(node, static_cast<int>(++last_ % 251), bytes);
    require(taken_.emplace(node, Taken{bytes, static_cast<unsigned char>(last_ % 251)}).second,
            "a node is taken by one");
  }
  void give_back(std::uint64_t which) {
    const auto taken = std::next(taken_.begin(), static_cast<std::ptrdiff_t>(which % taken_.size()));
    const auto* bytes = static_cast<const unsigned char*>(taken->first);
    for (std::size_t i = 0; i < taken->second.bytes; ++i)
      require(bytes[i] == taken->second.written, "nobody else writes to a node");
    nodes_.deallocate(taken->first, taken->second.bytes, taken->second.bytes);
    taken_.erase(taken);
  }

  struct Taken {
    std::size_t bytes;
    unsigned char written;
  };
  SpareNodes nodes_;
  std::map<void*, Taken> taken_;
  std::uint64_t last_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  CountsProgram counts;
  AgesProgram ages;
  NodesProgram nodes;
  Steps steps(data, size);
  while (steps.more()) {
    const std::uint64_t which = steps.byte() % 4;
    if (which < 2)
      counts.step(steps);
    else if (which == 2)
      ages.step(steps);
    else
      nodes.step(steps);
  }
  nodes.finish();
  return 0;
}
