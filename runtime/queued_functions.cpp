#include "runtime/queued_functions.h"

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cistern {
namespace {

struct Kept {
  const DriverApi* driver;
  int device;
  std::function<void()> function;
};
// Never destroyed: host functions may still run while the process ends.
struct All {
  std::mutex mutex;
  std::uint64_t latest = 0;
  std::unordered_map<std::uint64_t, Kept> kept;
};
All& all() {
  static All& all = *new All;
  return all;
}

}  // namespace

std::uint64_t keep_function(const DriverApi* driver, int device, std::function<void()> function) {
  All& functions = all();
  const std::lock_guard lock(functions.mutex);
  functions.kept.emplace(functions.latest + 1, Kept{driver, device, std::move(function)});
  return ++functions.latest;
}

std::function<void()> take_function(std::uint64_t number) noexcept {
  All& functions = all();
  const std::lock_guard lock(functions.mutex);
  auto node = functions.kept.extract(number);
  return node.empty() ? std::function<void()>() : std::move(node.mapped().function);
}

bool ends_all_work(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return true;
    default:
      return false;
  }
}

void drop_functions_after(CUresult result, const DriverApi* driver, int device) noexcept {
  if (!ends_all_work(result)) return;
  std::vector<decltype(All::kept)::node_type> dropped;  // destroyed with no lock held
  try {
    All& functions = all();
    const std::lock_guard lock(functions.mutex);
    for (auto each = functions.kept.begin(); each != functions.kept.end();) {
      const auto kept = each++;
      if (kept->second.driver != driver || kept->second.device != device) continue;
      dropped.emplace_back();
      dropped.back() = functions.kept.extract(kept);
    }
  } catch (...) {
    // No host memory to take more of them out by: the next answer of the kind finds the rest.
  }
}

}  // namespace cistern
