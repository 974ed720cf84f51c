#include "allocator/host_captures.h"

#include <utility>

namespace cistern {

HostCaptures::~HostCaptures() {
  {
    const std::lock_guard lock(ended_->mutex);
    ended_->is_watched = false;
  }
  take_ended([](Block*) {});
}

std::unique_ptr<HostCaptures::Share> HostCaptures::make(Block* block) const {
  return std::make_unique<Share>(block, ended_);
}

CUresult HostCaptures::give(const DriverApi& api, const StreamIdentity& stream, std::unique_ptr<Share>& share,
                            DriverEntryId* failed) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  *failed = DriverEntryId::stream_get_capture_info;
  CUresult result = api.stream_get_capture_info(stream.handle, &status, &id, &graph, nullptr, nullptr);
  if (result != CUDA_SUCCESS) return result;
  // An invalidated capture has no graph, and will have none.
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUuserObject object = nullptr;
  *failed = DriverEntryId::user_object_create;
  result = api.user_object_create(&object, share.get(), Share::end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  if (result != CUDA_SUCCESS) return result;
  static_cast<void>(share.release());
  *failed = DriverEntryId::graph_retain_user_object;
  result = api.graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (result != CUDA_SUCCESS) static_cast<void>(api.user_object_release(object, 1));  // which ends the share
  return result;
}

// Where the driver calls this it allows no driver call.
void CUDA_CB HostCaptures::Share::end(void* pointer) noexcept {
  auto* const share = static_cast<Share*>(pointer);
  const std::shared_ptr<Ended> ended = share->ended_;
  const std::lock_guard lock(ended->mutex);
  if (!ended->is_watched) {
    delete share;
    return;
  }
  share->next_ = std::exchange(ended->first, share);
  ended->any.store(true, std::memory_order_relaxed);
}

HostCaptures::Share* HostCaptures::take_all() noexcept {
  const std::lock_guard lock(ended_->mutex);
  ended_->any.store(false, std::memory_order_relaxed);
  return std::exchange(ended_->first, nullptr);
}

}  // namespace cistern
