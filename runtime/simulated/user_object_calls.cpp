// Entries about user objects.

#include <climits>

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {
namespace {

bool is_count(unsigned count) { return count != 0 && count <= INT_MAX; }

}  // namespace

CUresult DriverState::user_object_create(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned references,
                                         unsigned flags) {
  if (object == nullptr || destroy == nullptr || !is_count(references) || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::lock_guard lock(mutex);
  *object = user_objects.create(pointer, destroy, references);
  return CUDA_SUCCESS;
}

CUresult DriverState::user_object_release(CUuserObject object, unsigned count) {
  if (!is_count(count)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<const UserObject> released;  // let go of with no lock held
  const std::lock_guard lock(mutex);
  if (!user_objects.owns(object, count)) return CUDA_ERROR_INVALID_VALUE;
  released = user_objects.release(object, count);
  return CUDA_SUCCESS;
}

// However many references a graph has, it gives them up all at once.
CUresult DriverState::graph_retain_user_object(CUgraph graph_handle, CUuserObject object, unsigned count,
                                               unsigned flags) {
  if (!is_count(count) || (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool moves = (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0;
  std::shared_ptr<const UserObject> released;  // let go of with no lock held
  std::shared_ptr<const UserObject> found;
  const std::lock_guard lock(mutex);
  Graph* graph = graphs.find(graph_handle);
  found = user_objects.find(object);
  if (graph == nullptr || found == nullptr || (moves && !user_objects.owns(object, count))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  graph->body.objects.push_back(found);
  if (moves) released = user_objects.release(object, count);
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
