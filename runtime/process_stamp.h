#pragma once

// ProcessStamp: one process of this machine, told apart from a later one with the same id.
//
// Ids are those of this process's namespace: processes that see each other share it.
// Thread safety: the functions may be called from any thread.

#include <cstdint>

namespace cistern {

struct ProcessStamp {
  std::uint32_t id = 0;
  std::uint64_t started = 0;  // in the kernel's ticks since boot

  [[nodiscard]] bool operator==(const ProcessStamp&) const noexcept = default;
};

// This process; read anew after a fork.
[[nodiscard]] ProcessStamp this_process() noexcept;
// False once it has ended, also while its parent has not yet asked how. Without a start (0): whether
// any process has the id.
[[nodiscard]] bool is_alive(const ProcessStamp& process) noexcept;

// Opens descriptor `number` of a process as its own holder could, if it is the file with this
// inode: -1 if the process or the file is gone, or the system forbids it (errno). It needs
// /proc, and the right to look at the process: the same user, and that process dumpable.
[[nodiscard]] int open_file_of(const ProcessStamp& process, int number, std::uint64_t inode) noexcept;

}  // namespace cistern
