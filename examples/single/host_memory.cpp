// Memory of the host that devices reach: page-locked staging that is given back while a copy still reads it, and
// managed memory that host and device use in turn.
//   CISTERN_DEVICE=simulated:races=report cistern_host_memory     (or cuda)

#include <cistern/cistern.h>
#include <cistern/integrations/pmr.h>

#include <cstdio>
#include <exception>
#include <vector>

int main() try {
  constexpr std::size_t kCount = std::size_t{1} << 20;
  const cistern::Stream stream = cistern::Stream::create();
  cistern::DeviceBuffer<int> device(kCount, stream);
  cistern::PinnedMemoryResource pinned;
  cistern::ManagedMemoryResource managed;

  const void* first = nullptr;
  {
    std::pmr::vector<int> batch(kCount, 42, &pinned);
    first = batch.data();
    cistern::copy_async(device.data(), batch.data(), device.size_bytes(), stream);
    cistern::record_host_stream(batch.data(), stream);  // without this it could be overwritten now
  }
  std::pmr::vector<int> next(kCount, 43, &pinned);
  std::printf("while the copy is under way: %s\n", next.data() == first ? "the same block" : "another block");
  stream.synchronize();

  std::pmr::vector<int> result(kCount, 0, &managed);  // one address for both
  cistern::copy_async(result.data(), device.data(), device.size_bytes(), stream);
  stream.synchronize();  // before the host reads it
  std::printf("managed memory has %d\n", result.back());

  const cistern::HostMemoryStats stats = cistern::host_memory_stats();
  std::printf("page-locked: %lld bytes in %lld pieces, %lld handed out\n",
              static_cast<long long>(stats.allocated_bytes.current), static_cast<long long>(stats.allocations.current),
              static_cast<long long>(stats.active_requests.current));
  return result.back() == 42 && next.data() != first ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
