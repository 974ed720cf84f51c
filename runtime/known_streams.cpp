#include "runtime/known_streams.h"

#include <new>

namespace cistern {
namespace {

std::uint64_t next_state() noexcept {
  static std::atomic<std::uint64_t> latest{0};
  return latest.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

constinit thread_local std::array<KnownStreams::Answer, KnownStreams::kAnswers> KnownStreams::answers{};

KnownStreams::KnownStreams() noexcept : state_(next_state()) {}

bool KnownStreams::look_up(CUstream handle, KnownStream* known) const noexcept {
  Answer answer;
  answer.handle = handle;
  {
    const std::lock_guard lock(mutex_);
    answer.state = state_.load(std::memory_order_relaxed);
    if (const auto found = streams_.find(handle); found != streams_.end()) {
      answer.stream = found->second;
      answer.is_known = true;
    }
  }
  answers[place_of(handle)] = answer;
  *known = answer.stream;
  return answer.is_known;
}

bool KnownStreams::add(const StreamIdentity& stream, int device) noexcept try {
  const std::lock_guard lock(mutex_);
  streams_.insert_or_assign(stream.handle, KnownStream{stream.id, device});
  change_state();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void KnownStreams::remove(CUstream handle) noexcept {
  const std::lock_guard lock(mutex_);
  if (streams_.erase(handle) != 0) change_state();
}

// What threads remember is of the state before.
void KnownStreams::change_state() noexcept { state_.store(next_state(), std::memory_order_relaxed); }

}  // namespace cistern
