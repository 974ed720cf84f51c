#include "allocator/hand_over_tally.h"

#include <algorithm>
#include <utility>

namespace cistern {
namespace {

constexpr std::int64_t kBlocks = 32;
constexpr int kMostStalls = 16;

}  // namespace

void HandOverTally::provide(StreamNumber to, std::span<const StreamNumber> from) {
  StreamNumber last = to;
  for (const StreamNumber one : from) last = std::max(last, one);
  const auto count = static_cast<std::size_t>(last) + 1;
  if (streams_.size() < count) streams_.resize(count);
  for (const StreamNumber one : from) pairs_.try_emplace(key_of(to, one));
}

void HandOverTally::note(StreamNumber to, StreamNumber from, std::int64_t bytes, bool is_held_up) noexcept {
  const auto pair = pairs_.find(key_of(to, from));
  if (pair == pairs_.end()) return;  // reset meanwhile
  ++pair->second.hand_overs;
  pair->second.bytes += bytes;
  pair->second.held_up += is_held_up ? 1 : 0;
}

void HandOverTally::held_up(StreamNumber to, std::int64_t came, std::int64_t went) noexcept {
  Stream& stream = streams_[static_cast<std::size_t>(to)];
  if (std::exchange(stream.went, went) == went) return;
  if (stream.stalls == 0 || came - stream.began >= kBlocks) {
    stream.began = came;
    stream.stalls = 0;
  }
  if (++stream.stalls >= kMostStalls) stream.stands_alone = true;
}

void HandOverTally::share_anew() noexcept { std::fill(streams_.begin(), streams_.end(), Stream{}); }

void HandOverTally::forget(StreamNumber stream) noexcept {
  for (StreamNumber other = 0; static_cast<std::size_t>(other) < streams_.size(); ++other) {
    pairs_.erase(key_of(stream, other));
    pairs_.erase(key_of(other, stream));
  }
  const auto index = static_cast<std::size_t>(stream);
  if (index < streams_.size()) streams_[index] = {};
}

}  // namespace cistern
