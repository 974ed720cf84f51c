#pragma once

// HandleTable: the objects behind the handles that a driver hands out.
//
// A handle is a number, never an address: what a caller passes in is compared, not followed,
// so a handle that was destroyed, never existed or belongs to another driver is told apart
// from a live one by one comparison. Slots are pooled and keep their place.
// Not thread-safe: the driver holds its lock around every call.

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace cistern::simulated {

enum class HandleKind : std::uint8_t {
  context = 1,
  event = 2,
  graph = 3,
  graph_exec = 4,
  graph_node = 5,
  memory = 6,
  pool = 7,
  stream = 8,
  user_object = 9,
};

// What becomes of a handle when its object is gone.
enum class HandleReuse {
  soon,   // the next object gets it: as the driver does, for code that must not rely on handles
  never,  // not for 65,536 objects in its slot: use of a destroyed handle stays an error
};

// Below 2^53, which a reader of JSON that knows doubles alone tells apart, and above all addresses.
constexpr unsigned kSlotBits = 21;
constexpr unsigned kGenerationBits = 16;
constexpr unsigned kDriverBits = 12;
constexpr std::uint64_t make_handle(HandleKind kind, std::uint16_t driver, std::uint16_t generation,
                                    std::uint32_t slot) noexcept {
  const std::uint64_t of_driver = driver % (1U << kDriverBits);
  return (((((std::uint64_t{static_cast<std::uint8_t>(kind)} << kDriverBits) | of_driver) << kGenerationBits) |
           generation)
          << kSlotBits) |
         slot;
}

template <class T>
class HandleTable {
 public:
  HandleTable(HandleKind kind, std::uint16_t driver, HandleReuse reuse) : kind_(kind), driver_(driver), reuse_(reuse) {}

  // A new default object; `*object` is at its place until it is erased. Throws std::bad_alloc.
  [[nodiscard]] std::uint64_t insert(T** object) {
    if (idle_.empty()) add_chunk();
    Slot& slot = slot_at(idle_.back());
    if (reuse_ == HandleReuse::never) ++slot.generation;
    slot.handle = make_handle(kind_, driver_, slot.generation, idle_.back());
    idle_.pop_back();
    slot.object = T{};
    *object = &slot.object;
    ++size_;
    return slot.handle;
  }
  // nullptr if the handle is not that of a live object.
  [[nodiscard]] T* find(std::uint64_t handle) const noexcept {
    const auto index = static_cast<std::uint32_t>(handle & kSlotMask);
    if (index >= chunks_.size() * kChunk) return nullptr;
    Slot& slot = slot_at(index);
    return slot.handle == handle && handle != 0 ? &slot.object : nullptr;
  }
  // Requires: `handle` is live.
  [[nodiscard]] T& at(std::uint64_t handle) const noexcept {
    return slot_at(static_cast<std::uint32_t>(handle & kSlotMask)).object;
  }
  // Requires: `handle` is live.
  void erase(std::uint64_t handle) noexcept {
    const auto index = static_cast<std::uint32_t>(handle & kSlotMask);
    slot_at(index).handle = 0;
    idle_.push_back(index);  // within its capacity: add_chunk reserved it
    --size_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::uint32_t kSlotMask = (1U << kSlotBits) - 1;
  static constexpr std::size_t kChunk = 256;
  struct Slot {
    std::uint64_t handle = 0;  // 0: no object
    std::uint16_t generation = 0;
    T object{};
  };

  Slot& slot_at(std::uint32_t index) const { return (*chunks_[index / kChunk])[index % kChunk]; }

  void add_chunk() {
    const std::size_t first = chunks_.size() * kChunk;
    if (first + kChunk > kSlotMask) throw std::bad_alloc();
    idle_.reserve(first + kChunk);
    chunks_.push_back(std::make_unique<std::array<Slot, kChunk>>());
    for (std::size_t i = kChunk; i > 0; --i) idle_.push_back(static_cast<std::uint32_t>(first + i - 1));
  }

  HandleKind kind_;
  std::uint16_t driver_;
  HandleReuse reuse_;
  std::vector<std::unique_ptr<std::array<Slot, kChunk>>> chunks_;
  std::vector<std::uint32_t> idle_;
  std::size_t size_ = 0;
};

}  // namespace cistern::simulated
