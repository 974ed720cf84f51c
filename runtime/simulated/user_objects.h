#pragma once

// User objects: what graphs keep for their user, and destroy when nothing needs it any more.
//
// CUDA C++ Programming Guide, "CUDA User Objects": the caller's references, and those of graphs,
// executable graphs and launches that run. Not thread-safe: the driver holds its lock around
// every call. Destructors are their user's code: references that are given up are returned, so that
// the caller lets go of them with no lock held.

#include "runtime/driver_api.h"

#include <cstdint>
#include <map>
#include <memory>

namespace cistern::simulated {

// Calls its destructor callback at its end, which may call nothing of the driver.
class UserObject {
 public:
  UserObject(const void* driver, void* pointer, CUhostFn destroy) noexcept
      : driver_(driver), pointer_(pointer), destroy_(destroy) {}
  ~UserObject();
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

 private:
  const void* driver_;
  void* pointer_;
  CUhostFn destroy_;
};

class UserObjects {
 public:
  // `driver`: the address that names it to InsideOperation.
  UserObjects(const void* driver, std::uint16_t number) : driver_(driver), number_(number) {}

  // An object of which the caller has that many references.
  [[nodiscard]] CUuserObject create(void* pointer, CUhostFn destroy, unsigned references);
  // The object, if it still is there; else null.
  [[nodiscard]] std::shared_ptr<const UserObject> find(CUuserObject handle) const;
  // Whether the caller has that many references.
  [[nodiscard]] bool owns(CUuserObject handle, unsigned count) const;
  // Requires: owns(handle, count). What it returns is what the caller no longer refers to.
  [[nodiscard]] std::shared_ptr<const UserObject> release(CUuserObject handle, unsigned count);

 private:
  struct Entry {
    std::shared_ptr<const UserObject> owned;  // while the caller has references
    std::weak_ptr<const UserObject> object;   // graphs may have others
    std::uint64_t references = 0;             // the caller's
  };
  void drop_expired();

  const void* driver_;
  std::uint16_t number_;
  std::uint32_t created_ = 0;
  std::size_t sweep_at_ = 64;
  std::map<std::uint64_t, Entry> entries_;  // by handle
};

}  // namespace cistern::simulated
