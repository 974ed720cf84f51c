#include "tests/life/static_objects.h"

#include <cistern/cistern.h>

#include <memory>
#include <vector>

namespace cistern::life {
namespace {

// Made before the heap is: they end after everything that a function of the library made first.
struct Owners {
  DeviceBuffer<float> buffer;
  DeviceUniquePtr<float[]> unique;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> event;
  std::unique_ptr<MemPool> pool;
  std::unique_ptr<PinnedMemory> pinned;
  std::unique_ptr<PeakScope> scope;
  std::unique_ptr<CachingAllocator> allocator;
  Graph graph;
  std::vector<void*> plain;

  ~Owners() {
    for (void* pointer : plain) deallocate(pointer);
  }
};
Owners owners;  // NOLINT: that it is one of the whole program is the point
std::vector<DeviceBuffer<char>> buffers;

}  // namespace

void fill_static_objects() {
  owners.stream = std::make_unique<Stream>(Stream::create());
  owners.buffer = DeviceBuffer<float>(1000, *owners.stream);
  owners.unique = make_device_unique<float[]>(1000, *owners.stream);
  owners.event = std::make_unique<Event>();
  owners.event->record(*owners.stream);
  owners.pool = std::make_unique<MemPool>();
  buffers.emplace_back(1 << 20, *owners.stream);
  buffers.back().record_stream(Stream::from_pool());
  owners.plain = {allocate(100), allocate(3 << 20, *owners.stream)};
  owners.pinned = std::make_unique<PinnedMemory>(4096);
  owners.scope = std::make_unique<PeakScope>();
  owners.allocator = std::make_unique<CachingAllocator>();
  static_cast<void>(owners.allocator->allocate(5000));
  CaptureGuard capture(*owners.stream);
  fill_async(owners.buffer.data(), 0, 4000, *owners.stream);
  owners.graph = capture.end();
  owners.graph.launch(*owners.stream);
}

}  // namespace cistern::life
