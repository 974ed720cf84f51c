// The destructors stand here, out of line, so that each class has one vtable and one type
// identity in the whole program: what the library throws, an application catches.

#include <cistern/error.h>

namespace cistern {

Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
NotReady::~NotReady() = default;
NotSupported::~NotSupported() = default;
DriverError::~DriverError() = default;
LibraryError::~LibraryError() = default;
OutOfMemoryError::~OutOfMemoryError() = default;

const char* to_string(OutOfMemoryCause cause) noexcept {
  switch (cause) {
    case OutOfMemoryCause::device_full:
      return "device full";
    case OutOfMemoryCause::fragmented:
      return "fragmented";
    case OutOfMemoryCause::limit:
      return "limit";
    case OutOfMemoryCause::pending_frees:
      return "pending frees";
    case OutOfMemoryCause::driver_refusal:
      return "driver refusal";
    case OutOfMemoryCause::too_large:
      return "too large";
    case OutOfMemoryCause::graph_pools:
      return "graph pools";
    case OutOfMemoryCause::address_space:
      return "address space";
  }
  return "unknown cause";
}

}  // namespace cistern
