#include "allocator/heap_state.h"

namespace cistern {

HeapState::HeapState(StreamHits& heap, const HeapSurroundings& surroundings, int device,
                     const AllocatorOptions& options)
    : api_(surroundings.contexts.api()),
      surroundings_(surroundings),
      device_(device),
      context_(surroundings.contexts.primary(device)),
      source_(api_),
      pages_(needs_pages(options) ? PageSource::make(api_, surroundings.contexts.driver_device(device)) : nullptr),
      mutex_(heap),
      options_(served(options)),
      policy_(options_),
      caches_(caches(options.policy)),
      pending_(api_, surroundings.event_pools, device) {}

// As far as the device can: without virtual memory management segments do not expand, and there are no pages.
AllocatorOptions HeapState::served(AllocatorOptions options) const {
  if (needs_pages(options) && pages_ == nullptr) options.policy = Policy::classic;
  return options;
}

}  // namespace cistern
