#include "stats/history_entry.h"

#include <sys/mman.h>

#include <new>

namespace cistern {

template <>
HistoryChunk* HistoryChunk::map() noexcept {
  void* const pages = ::mmap(nullptr, sizeof(HistoryChunk), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : new (pages) HistoryChunk;
}

template <>
void HistoryChunk::unmap(HistoryChunk* chunk) noexcept {
  chunk->~HistoryChunk();
  static_cast<void>(::munmap(chunk, sizeof(HistoryChunk)));  // refused only for what is no mapping
}

}  // namespace cistern
