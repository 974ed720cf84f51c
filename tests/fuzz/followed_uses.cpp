// Uses by address, which come, are found and go, beside a standard map.

#include "allocator/followed_uses.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <cstdint>
#include <map>
#include <set>

namespace cistern {
namespace {

// Of each use its stream's id tells which it is.
class Program {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const std::uint64_t address = 512 * (1 + steps.byte() % 97) << kind / 4 % 4 * 7;
    const auto known = known_.find(address);
    FollowedUses::Used* const used = uses_.find(address);
    require((used != nullptr) == (known != known_.end()), "what is there is found");
    if (used != nullptr) compare(*used, known->second);
    if (kind % 32 == 31) return take_all();
    if (used == nullptr) return add(address);
    if (kind % 2 == 0) return;
    uses_.erase(used);
    known_.erase(known);
    require(uses_.find(address) == nullptr && uses_.size() == known_.size(), "what went is there no more");
  }
  void finish() { take_all(); }

 private:
  void add(std::uint64_t address) {
    StreamUses uses;
    uses.emplace_front();
    uses.front().stream.id = ++last_;
    uses_.make_room();
    uses_.add(address, last_ * 512, std::move(uses));
    known_[address] = last_;
    require(uses_.size() == known_.size(), "how many there are");
  }
  static void compare(const FollowedUses::Used& used, std::uint64_t number) {
    require(used.bytes == number * 512 && !used.uses.empty() && used.uses.front().stream.id == number,
            "what is there is what came");
  }
  void take_all() {
    std::set<std::uint64_t> taken;
    uses_.take_all([&](FollowedUses::Used& used) {
      compare(used, known_.at(used.address));
      require(taken.insert(used.address).second, "each is taken once");
    });
    require(taken.size() == known_.size() && uses_.size() == 0, "all are taken");
    known_.clear();
  }

  FollowedUses uses_;
  std::map<std::uint64_t, std::uint64_t> known_;
  std::uint64_t last_ = 0;
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
