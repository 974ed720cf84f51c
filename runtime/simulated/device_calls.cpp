// Entries about the driver, its devices and their primary contexts.

#include <array>
#include <cstring>

#include "runtime/process_stamp.h"
#include "runtime/simulated/device_identity.h"
#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {
namespace {

// What the table offers is what this version of the driver has.
constexpr int kDriverVersion = 12080;

}  // namespace

CUresult DriverState::init(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (devices.empty()) return CUDA_ERROR_NO_DEVICE;
  initialized.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult DriverState::driver_get_version(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult DriverState::device_get_count(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = device_count();
  return CUDA_SUCCESS;
}

CUresult DriverState::device_get(CUdevice* result, int ordinal) {
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *result = ordinal;
  return CUDA_SUCCESS;
}

CUresult DriverState::device_get_name(char* name, int length, CUdevice index) {
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  std::strncpy(name, kDeviceName, static_cast<std::size_t>(length));
  name[length - 1] = '\0';
  return CUDA_SUCCESS;
}

CUresult DriverState::device_get_uuid(CUuuid* uuid, CUdevice index) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  const std::array<unsigned char, 16> bytes = device_uuid(device(index).physical);
  std::memcpy(uuid->bytes, bytes.data(), bytes.size());
  return CUDA_SUCCESS;
}

CUresult DriverState::device_total_mem(std::size_t* bytes, CUdevice index) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device(index).capacity.total();
  return CUDA_SUCCESS;
}

CUresult DriverState::device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice index) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  const auto known = device_attribute(attribute, options, device(index).physical);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  *value = *known;
  return CUDA_SUCCESS;
}

CUresult DriverState::primary_ctx_retain(CUcontext* context, CUdevice index) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  ++device(index).retained;
  *context = context_of(index);
  return CUDA_SUCCESS;
}

CUresult DriverState::primary_ctx_get_state(CUdevice index, unsigned* flags, int* active) {
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  *flags = device(index).flags;
  *active = device(index).has_context() ? 1 : 0;
  return CUDA_SUCCESS;
}

// After the last release, use of the context is an error until it is retained again. What was
// created in it is kept: memory that was not freed stays counted, so that tests see a leak.
CUresult DriverState::primary_ctx_release(CUdevice index) {
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  if (device(index).retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --device(index).retained;
  return CUDA_SUCCESS;
}

CUresult DriverState::ctx_get_current(CUcontext* context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int index = current.get();
  *context = index < 0 ? nullptr : context_of(index);
  return CUDA_SUCCESS;
}

CUresult DriverState::ctx_set_current(CUcontext context) {
  const int index = device_of(context);
  if (index < 0 && context != nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  current.set(index);
  return CUDA_SUCCESS;
}

CUresult DriverState::ctx_get_device(CUdevice* device) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (current.get() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current.get();
  return CUDA_SUCCESS;
}

CUresult DriverState::ctx_synchronize() {
  Lock lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  if (races) races->host_waited_for_device(index);
  return wait_for_device(lock, index);
}

CUresult DriverState::ctx_get_stream_priority_range(int* least, int* greatest) {
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

std::vector<GpuProcess> DriverState::list_processes(CUdevice index) {
  if (!is_device(index)) return {};
  const std::lock_guard lock(mutex);
  if (shared_devices) return shared_devices->processes(device(index).physical);
  return {{this_process().id, device(index).capacity.used()}};
}

}  // namespace cistern::simulated
