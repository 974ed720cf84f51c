// Sorted chunks beside a standard map: values come anywhere, go alone and by the dozen, and get other keys.

#include "allocator/sorted_chunks.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <iterator>
#include <map>

namespace cistern {
namespace {

struct Value {
  std::uint64_t key;
  std::uint64_t number;
};
struct ItsKey {
  std::uint64_t operator()(const Value& value) const { return value.key; }
};

class Program {
 public:
  explicit Program(Steps steps) : steps_(steps) {}

  void run() {
    while (steps_.more()) step();
    chunks_.audit();
    auto at = chunks_.begin();
    for (const auto& [key, number] : expected_) {
      require(at != chunks_.end() && chunks_[at].key == key && chunks_[at].number == number, "all are there, in order");
      at = chunks_.next(at);
    }
    require(at == chunks_.end(), "nothing else is there");
  }

 private:
  void step() {
    const std::uint64_t kind = steps_.byte();
    const std::uint64_t key = steps_.word();
    compare(key);
    if (kind % 8 < 4)
      insert(key, 1 + kind / 8);
    else if (kind % 8 == 4)
      erase(key, 1 + kind / 8);
    else if (kind % 8 == 5)
      erase(key, 1);
    else
      change(key, steps_.word());
    require(chunks_.size() == expected_.size(), "how many there are");
  }
  void compare(std::uint64_t key) {
    const auto found = chunks_.lower_bound(key);
    const auto expected = expected_.lower_bound(key);
    require((found == chunks_.end()) == (expected == expected_.end()), "whether there is one");
    require(found == chunks_.end() || chunks_[found].key == expected->first, "the first that is not less");
    require(chunks_.contains(key) == expected_.contains(key), "whether it is there");
  }
  // So many side by side.
  void insert(std::uint64_t key, std::uint64_t count) {
    for (; count > 0; --count, ++key) {
      if (!expected_.emplace(key, ++last_).second) continue;
      chunks_.insert({key, last_});
    }
  }
  void erase(std::uint64_t key, std::uint64_t count) {
    for (; count > 0; --count) {
      const auto gone = expected_.lower_bound(key);
      if (gone == expected_.end()) return;
      chunks_.erase(chunks_.lower_bound(key));
      expected_.erase(gone);
    }
  }
  void change(std::uint64_t key, std::uint64_t other) {
    const auto changed = expected_.lower_bound(key);
    if (changed == expected_.end() || (changed->first != other && expected_.contains(other))) return;
    chunks_.change(chunks_.lower_bound(key), {other, ++last_});
    expected_.erase(changed);
    expected_[other] = last_;
  }

  Steps steps_;
  SortedChunks<Value, ItsKey> chunks_;
  std::map<std::uint64_t, std::uint64_t> expected_;
  std::uint64_t last_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program(Steps(data, size)).run();
  return 0;
}
