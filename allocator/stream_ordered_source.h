#pragma once

// StreamOrderedSource: device memory from a pool of the driver's (cuMemAllocFromPoolAsync), which keeps what is given
// back (cuMemFreeAsync) and hands it out again in stream order.
//
// The pool is this source's own: nothing that other libraries take from the device's default pool is in it. It keeps
// all that it has until it is trimmed. Thread safety: as SegmentSource's.

#include "allocator/segment_source.h"
#include "runtime/context.h"

namespace cistern {

class StreamOrderedSource final : public SegmentSource {
 public:
  // Throws NotSupported naming the device if it has no such pools, DriverError.
  StreamOrderedSource(Contexts& contexts, int index);
  // Memory that is still out goes when it is freed: the driver keeps the pool until then.
  ~StreamOrderedSource() override;
  StreamOrderedSource(const StreamOrderedSource&) = delete;
  StreamOrderedSource& operator=(const StreamOrderedSource&) = delete;

  // A stream that captures gets none (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED): the memory would be the graph's.
  CUresult allocate(std::size_t bytes, const StreamIdentity& stream, std::uint64_t* address) override;
  // In order on `stream`, without waiting. Where that is another thread's default stream, or destroyed, behind a wait
  // for the device; a stream that captures is refused, as above.
  CUresult release(std::uint64_t address, const StreamIdentity& stream, bool may_wait) override;
  [[nodiscard]] DriverEntryId allocate_entry() const override { return DriverEntryId::mem_alloc_from_pool_async; }
  [[nodiscard]] DriverEntryId release_entry() const override { return DriverEntryId::mem_free_async; }

  // What the pool has, handed out or kept; false if the driver does not tell.
  [[nodiscard]] bool holds_more_than(std::size_t bytes) const;
  // The pool gives back what it keeps and no queued work uses, until it has at most so much. `released`: how much.
  [[nodiscard]] CUresult trim(std::size_t most_bytes, std::size_t* released);
  // The device may use the pool's memory, of now and later.
  [[nodiscard]] CUresult allow(CUdevice peer);

 private:
  [[nodiscard]] CUresult held(std::size_t* bytes) const;

  Contexts& contexts_;
  const DriverApi& api_;
  const int index_;
  CUmemoryPool pool_ = nullptr;
};

}  // namespace cistern
