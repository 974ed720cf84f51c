#pragma once

// What one call of comm queues: copies and sums over several streams, what orders them, and the memory that
// they need meanwhile.
//
// Thread safety: none; an object is one call's.

#include <cistern/stream.h>
#include <cistern/tensor.h>

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/strided_work.h"

namespace cistern::comm {

// Both of one shape and type.
[[nodiscard]] StridedWork work_of(StridedOperation operation, const TensorView& to, const TensorView& from);
// The current stream of the device that a tensor is on.
[[nodiscard]] Stream stream_of(const TensorView& tensor);
// Bytes of contiguous elements, as a tensor of bytes.
[[nodiscard]] TensorView byte_view(const TensorView& tensor, std::size_t first, std::size_t count);

inline constexpr std::string_view kHostPacks = "the host packs elements";
// What the host does is done once, and memory that it packs into is gone when a graph is launched. Throws
// NotSupported, saying what it is that the host does.
void require_no_capture(const Stream& run, std::string_view what);

class Exchange {
 public:
  Exchange() = default;
  // Orders as finish does, so that memory that is freed next is not in use: waits for what writes to the host, and
  // if there is no other way.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Work of `run` begins behind what is queued on `stream` now; finish orders `stream` behind it.
  void lend(const Stream& stream, const Stream& run);
  // The block that the tensor is in, if it is in one, is used on `run`.
  void uses(const TensorView& tensor, const Stream& run);

  // All queue on `run`, a stream of one of the two devices. Elements that lie apart are packed or unpacked on
  // their own device, on its current stream if `run` is not of it. What is copied to the host is there after
  // finish_on_host.
  void copy(const TensorView& to, const TensorView& from, const Stream& run);
  // Brings what was copied to where it lies apart: once all copies are queued, for it follows them on the
  // receiver's stream. finish does it too.
  void unpack();
  // Both on `run`'s device.
  void add(const TensorView& to, const TensorView& from, const Stream& run);
  // The elements one after the other, where the tensor is: itself, or a copy that is queued on `run`.
  [[nodiscard]] TensorView packed(const TensorView& tensor, const Stream& run);
  // Memory for the time of this exchange.
  [[nodiscard]] TensorView staging(const TensorView& like, Place place, const Stream& run);

  // Makes the streams wait for those that ran for them, and gives staging memory back.
  void finish();
  // The same, and waits until all is done.
  void finish_on_host();

 private:
  struct Loan {
    Stream stream;
    Stream run;
  };
  struct Unpacking {
    StridedWork work;
    Stream stream;
    Stream run;
  };
  void move(const TensorView& to, const TensorView& from, const Stream& run);

  std::vector<Tensor> staging_;
  std::vector<Unpacking> unpackings_;
  std::vector<StridedWork> on_host_;  // to be done once the copies are
  std::vector<Stream> awaited_;
  std::vector<Loan> loans_;
};

}  // namespace cistern::comm
