#include "stats/raw_frames.h"

namespace cistern {

void FramesHold::Held::free_given_up() noexcept {
  while (given_up != nullptr) {
    const std::unique_ptr<std::uintptr_t[]> words(given_up);
    given_up = reinterpret_cast<std::uintptr_t*>(words[0]);
  }
}

// Who is alone stays so: others come by the table, under the lock.
void FramesHold::give_up(RawFrames frames) noexcept {
  if (held_->holders.load(std::memory_order_acquire) == 1) {
    held_->free_given_up();
    return;
  }
  frames.words_[0] = reinterpret_cast<std::uintptr_t>(held_->given_up);
  held_->given_up = frames.words_.release();
}

void FramesHold::reset() noexcept {
  Held* const held = std::exchange(held_, nullptr);
  if (held != nullptr && held->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete held;
}

}  // namespace cistern
