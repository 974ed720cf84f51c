#include "runtime/context.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include "runtime/driver_error.h"

namespace cistern {
namespace {

constexpr const char* kNoDevice =
    "the driver offers no device: there is none, or CUDA_VISIBLE_DEVICES hides all of them";

std::string describe_device(int device) { return fmt::format("device {}", device); }

}  // namespace

Contexts::Contexts(const DriverApi& api) : api_(api) {
  const CUresult result = api_.init(0);
  if (result == CUDA_ERROR_NO_DEVICE) throw NotSupported(kNoDevice);
  check_driver(api_, result, DriverEntryId::init, [] { return std::string("the driver"); });
  int count = 0;
  check_driver(api_, api_.device_get_count(&count), DriverEntryId::device_get_count,
               [] { return std::string("the driver"); });
  if (count <= 0) throw NotSupported(kNoDevice);
  devices_.resize(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    check_driver(api_, api_.device_get(&devices_[static_cast<std::size_t>(i)].device, i), DriverEntryId::device_get,
                 [i] { return describe_device(i); });
}

Contexts::~Contexts() {
  // A refusal means that the driver is gone already, and the contexts with it.
  for (const Entry& entry : devices_)
    if (entry.context != nullptr) static_cast<void>(api_.primary_ctx_release(entry.device));
}

void Contexts::require(int device) const {
  if (device >= 0 && device < device_count()) return;
  throw InvalidArgument(
      fmt::format("device {}: there is no such device; expected an index from 0 to {}", device, device_count() - 1));
}

CUdevice Contexts::driver_device(int device) const {
  require(device);
  return devices_[static_cast<std::size_t>(device)].device;
}

CUcontext Contexts::primary(int device) {
  require(device);
  const std::lock_guard lock(mutex_);
  Entry& entry = devices_[static_cast<std::size_t>(device)];
  if (entry.context == nullptr)
    check_driver(api_, api_.primary_ctx_retain(&entry.context, entry.device), DriverEntryId::primary_ctx_retain,
                 [device] { return describe_device(device); });
  return entry.context;
}

int Contexts::device_of(CUcontext context) const {
  const auto describe = [context] { return fmt::format("context {}", static_cast<void*>(context)); };
  const ContextGuard guard(api_, context);
  CUdevice device = 0;
  check_driver(api_, api_.ctx_get_device(&device), DriverEntryId::ctx_get_device, describe);
  for (int i = 0; i < device_count(); ++i)
    if (devices_[static_cast<std::size_t>(i)].device == device) return i;
  throw InvalidArgument(describe() + ": expected a context of a device that the driver lists");
}

ContextGuard::ContextGuard(const DriverApi& api, CUcontext context) : api_(api) {
  const auto describe = [context] { return fmt::format("context {}", static_cast<void*>(context)); };
  check_driver(api_, api_.ctx_get_current(&previous_), DriverEntryId::ctx_get_current, describe);
  if (previous_ == context) return;
  check_driver(api_, api_.ctx_set_current(context), DriverEntryId::ctx_set_current, describe);
  changed_ = true;
}

ContextGuard::~ContextGuard() {
  // The previous context was current a moment ago: only a driver that is gone refuses it.
  if (changed_) static_cast<void>(api_.ctx_set_current(previous_));
}

}  // namespace cistern
