#pragma once

// The devices of a call, and what NCCL does of it.
//
// Thread safety: all functions may be called from any thread.

#include <cistern/tensor.h>

#include <vector>

namespace cistern::comm {

// Throws InvalidArgument, naming the first that is none.
[[nodiscard]] std::vector<int> resolved(const std::vector<Device>& devices);

// Tensors that were checked. Throw NotSupported where NCCL has no such call, or cannot be used; LibraryError.
void broadcast_by_nccl(const TensorView& tensor, const std::vector<TensorView>& copies);
[[nodiscard]] Tensor reduce_by_nccl(const std::vector<TensorView>& inputs, int destination);

}  // namespace cistern::comm
