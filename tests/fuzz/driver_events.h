#pragma once

// Events of a driver that does nothing else, for targets whose frees wait for them.

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/fuzz/property.h"

namespace cistern {

// Events are their numbers; what is not said of one is done.
struct Events {
  Events() {
    api.event_create = {this, [](void* self, CUevent* event, unsigned) {
                          auto& events = *static_cast<Events*>(self);
                          *event = reinterpret_cast<CUevent>(++events.made);
                          return CUDA_SUCCESS;
                        }};
    api.event_destroy = {this, [](void* self, CUevent event) {
                           require(static_cast<Events*>(self)->destroyed.insert(event).second,
                                   "an event is destroyed once");
                           return CUDA_SUCCESS;
                         }};
    api.event_query = {this, [](void* self, CUevent event) {
                         auto& events = *static_cast<Events*>(self);
                         events.asked.push_back(event);
                         return events.result_of(event);
                       }};
  }
  // None is left.
  ~Events() { require(destroyed.size() == made, "no event is left"); }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  [[nodiscard]] CUresult result_of(CUevent event) const {
    const auto result = results.find(event);
    return result == results.end() ? CUDA_SUCCESS : result->second;
  }

  DriverApi api;
  std::uintptr_t made = 0;
  std::map<CUevent, CUresult> results;
  std::vector<CUevent> asked;
  std::set<CUevent> destroyed;
};

inline CUresult result_from(std::uint64_t text) {
  if (text % 8 < 4) return CUDA_SUCCESS;
  return text % 8 < 7 ? CUDA_ERROR_NOT_READY : CUDA_ERROR_LAUNCH_FAILED;
}

}  // namespace cistern
