#pragma once

// ReceiverTable: the receivers of the memory that one process has sent, counted where they can
// say themselves that they have come and gone.
//
// An unnamed file that the sender makes and each receiver maps: one slot for each handle that was
// sent, with one place for each receiver that is expected. A receiver takes a place by writing its
// process there, and marks it done when it lets go; one that died without has a place that names
// no living process. The file is gone with the last process that maps it.
// Thread safety: receivers' members may be called from any thread of any process; the sender's
// from one thread at a time.

#include <cistern/ipc.h>

#include "runtime/process_stamp.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cistern {

class ReceiverTable {
 public:
  static constexpr std::uint32_t kSlots = 16384;
  static constexpr int kReceivers = 64;  // of one handle, at most

  // Throws std::bad_alloc if the host has no memory for it.
  [[nodiscard]] static std::shared_ptr<ReceiverTable> create();
  // The table that a handle tells of; null if its sender is gone, or must not be looked at.
  [[nodiscard]] static std::shared_ptr<ReceiverTable> open(const MemoryHandle::Sender& sender);
  ~ReceiverTable();
  ReceiverTable(const ReceiverTable&) = delete;
  ReceiverTable& operator=(const ReceiverTable&) = delete;

  // --- The sender ---
  // A slot for a handle: where its receivers find it. Nothing's slot is kSlots: all are in use.
  [[nodiscard]] MemoryHandle::Sender add(int receivers);
  void remove(std::uint32_t slot) noexcept;
  // How many receivers are to come, or live and hold on.
  [[nodiscard]] int count_open(std::uint32_t slot) const noexcept;
  // Those that have not come are not awaited any more.
  void recall(std::uint32_t slot) noexcept;

  // --- A receiver ---
  // Takes a place for this process: -1 if all are taken, or the handle is not open any more.
  [[nodiscard]] int take_place(const MemoryHandle::Sender& sender) noexcept;
  void leave(const MemoryHandle::Sender& sender, int place) noexcept;

 private:
  struct Layout;
  ReceiverTable(FileDescriptor file, std::uint64_t inode, Layout* layout);
  [[nodiscard]] bool has(const MemoryHandle::Sender& sender) const noexcept;

  FileDescriptor file_;
  std::uint64_t inode_;
  Layout* layout_;
  std::uint32_t used_ = 0;
  std::vector<std::uint32_t> idle_;
};

}  // namespace cistern
