#include "stats/stack_capture.h"

#include "stats/tick_clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>

namespace cistern {
namespace {

// What is above main, or above a thread's first function, may be left out of a chain: the C
// library's, which keeps no frame pointers. At most __libc_start_call_main, __libc_start_main, _start.
constexpr std::size_t kMostAtTheBottom = 3;
// One of so many stacks of a thread is timed.
constexpr unsigned kTimedEvery = 16;

// The calling thread's own stack: all of it above a frame can be read. Empty if it is not known.
struct StackExtent {
  std::uintptr_t lowest = 0;
  std::uintptr_t end = 0;
};

StackExtent stack_of_thread() noexcept {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* lowest = nullptr;
  std::size_t bytes = 0;
  const int result = pthread_attr_getstack(&attributes, &lowest, &bytes);
  pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<std::uintptr_t>(lowest);
  return result == 0 ? StackExtent{begin, begin + bytes} : StackExtent{};
}

struct OfThread {
  StackExtent stack;
  unsigned count = 0;

  // Where the thread's stack is may be unknown for now: of the main thread the C library reads it from a
  // file, for which there may be no descriptor or no memory. Asked at its 1st, 2nd, 4th, 8th stack and so on,
  // so that a thread whose stack never becomes known spends nothing on it.
  void find_stack() noexcept {
    if ((count & (count - 1)) == 0) stack = stack_of_thread();
  }
};

// A frame is the caller's frame pointer, then the return address (x86-64: the psABI's section 3.2.2;
// aarch64: AAPCS64's frame record). Each lies above the one before, on the thread's stack. A fiber's
// stack is elsewhere: between it and the thread's may be nothing, so nothing is read there.
__attribute__((no_sanitize("address", "thread"))) std::size_t walk_chain(std::uintptr_t frame, const StackExtent& stack,
                                                                         std::uintptr_t* frames,
                                                                         std::size_t most) noexcept {
  // The last place of a whole record: what a caller without frame pointers keeps there may be any number.
  const std::uintptr_t last = stack.end - std::min(stack.end, 2 * sizeof(std::uintptr_t));
  if (stack.end == 0 || frame < stack.lowest) return 0;
  std::size_t depth = 0;
  while (depth < most && frame % sizeof(std::uintptr_t) == 0 && frame <= last) {
    const auto* record = reinterpret_cast<const std::uintptr_t*>(frame);
    if (record[1] == 0) break;
    frames[depth++] = record[1];
    if (record[0] <= frame) break;
    frame = record[0];
  }
  return depth;
}

struct Unwinding {
  std::uintptr_t* frames;
  std::size_t most;
  std::size_t depth;
  std::uintptr_t first;  // what comes before it is left out
  std::size_t skipped;
};

_Unwind_Reason_Code visit_frame(_Unwind_Context* context, void* unwinding) noexcept {
  auto& all = *static_cast<Unwinding*>(unwinding);
  const std::uintptr_t address = _Unwind_GetIP(context);
  if (all.depth == 0 && address != all.first && all.skipped < 4) {
    ++all.skipped;
    return _URC_NO_REASON;
  }
  if (address == 0 || all.depth == all.most) return _URC_END_OF_STACK;
  all.frames[all.depth++] = address;
  return _URC_NO_REASON;
}

// The stack from the return address `first` on.
std::size_t walk_tables(std::uintptr_t first, std::uintptr_t* frames, std::size_t most) noexcept {
  Unwinding unwinding{frames, most, 0, first, 0};
  _Unwind_Backtrace(visit_frame, &unwinding);
  return unwinding.depth;
}

bool in_one_module(std::uintptr_t a, std::uintptr_t b) noexcept {
  Dl_info of_a;
  Dl_info of_b;
  if (dladdr(reinterpret_cast<void*>(a - 1), &of_a) == 0 || dladdr(reinterpret_cast<void*>(b - 1), &of_b) == 0)
    return true;
  return of_a.dli_fbase == of_b.dli_fbase;
}

// Whether the chain shows what the tables show, but for what the C library has at the bottom.
bool is_whole(const std::uintptr_t* chain, std::size_t depth, const std::uintptr_t* tables, std::size_t table_depth) {
  if (depth > table_depth || !std::equal(chain, chain + depth, tables)) return false;
  const std::size_t missing = table_depth - depth;
  return missing == 0 || (missing <= kMostAtTheBottom && depth != 0 && !in_one_module(chain[depth - 1], tables[depth]));
}

// What is known of chains, by hash: whether each was whole. A cache: what falls out is found again.
class Verdicts {
 public:
  enum class Verdict { unknown, whole, broken };
  [[nodiscard]] Verdict of(std::uint64_t hash) const noexcept {
    const std::uint64_t known = place(hash).load(std::memory_order_relaxed);
    if (((known ^ hash) >> 1) != 0 || known == 0) return Verdict::unknown;
    return (known & 1) != 0 ? Verdict::whole : Verdict::broken;
  }
  void note(std::uint64_t hash, bool whole) noexcept {
    place(hash).store((hash & ~std::uint64_t{1}) | (whole ? 1 : 0), std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kPlaces = std::size_t{1} << 14;
  using Place = std::atomic<std::uint64_t>;
  [[nodiscard]] static Place& place(std::uint64_t hash) noexcept {
    static constinit std::array<Place, kPlaces> places{};
    return places[hash >> 50];
  }
};

}  // namespace

[[gnu::noinline]] CapturedStack capture_stack(std::uintptr_t* frames, std::size_t most) noexcept {
  thread_local OfThread thread;
  const TickClock clock;
  const bool timed = thread.count++ % kTimedEvery == 0;
  if (thread.stack.end == 0) [[unlikely]]
    thread.find_stack();
  const std::uint64_t before = timed ? clock.now() : 0;
  const auto first = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));

  CapturedStack stack;
  stack.frames = frames;
  std::size_t depth = walk_chain(frame, thread.stack, frames, most);
  stack.hash = hash_of(frames, depth);
  Verdicts verdicts;
  const Verdicts::Verdict verdict = verdicts.of(stack.hash);
  if (verdict == Verdicts::Verdict::unknown) {
    std::array<std::uintptr_t, kMaxStackFrames> by_tables;
    const std::size_t table_depth = walk_tables(first, by_tables.data(), most);
    const bool whole = is_whole(frames, depth, by_tables.data(), table_depth);
    verdicts.note(stack.hash, whole);
    if (!whole) {
      depth = table_depth;
      std::copy_n(by_tables.data(), depth, frames);
      stack.by_tables = true;
    }
  } else if (verdict == Verdicts::Verdict::broken) {
    depth = walk_tables(first, frames, most);
    stack.by_tables = true;
  }
  if (stack.by_tables) stack.hash = hash_of(frames, depth);
  stack.depth = static_cast<std::uint32_t>(depth);
  // A chain that is checked for the first time says nothing of what it costs.
  if (timed && verdict != Verdicts::Verdict::unknown) stack.ticks = clock.now() - before;
  return stack;
}

}  // namespace cistern
