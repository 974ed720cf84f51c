#pragma once

// A driver table that passes every call on with an object of a class around it: its constructor
// runs before the call and its destructor after it. So a benchmark can leave out what is the driver's.

#include "runtime/driver_api.h"

namespace cistern {

template <class Around>
class DriverAround {
 public:
  // `inner` must outlive it.
  explicit DriverAround(const DriverApi& inner) : inner_(inner), api_(inner) {
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) \
  if (inner.member) api_.member = {this, &Passing<&DriverApi::member>::call};
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
  }
  DriverAround(const DriverAround&) = delete;
  DriverAround& operator=(const DriverAround&) = delete;

  [[nodiscard]] const DriverApi& api() const { return api_; }

 private:
  template <auto member>
  struct Passing;
  template <class... Args, DriverEntry<CUresult(Args...)> DriverApi::*member>
  struct Passing<member> {
    static CUresult call(void* self, Args... args) {
      const Around around;
      return (static_cast<const DriverAround*>(self)->inner_.*member)(args...);
    }
  };

  const DriverApi& inner_;
  DriverApi api_;
};

}  // namespace cistern
