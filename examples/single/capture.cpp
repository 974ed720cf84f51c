// A graph and its memory: captured once into a pool of its own, launched many times, given back when it is over.
//   CISTERN_DEVICE=simulated:races=report cistern_capture     (or cuda)

#include <cistern/cistern.h>

#include <cstdio>
#include <exception>

int main() try {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const cistern::Stream stream = cistern::Stream::create();
  cistern::PinnedMemory input(kBytes), output(kBytes);
  const int device = stream.device().index();
  const cistern::PoolId pool = cistern::capture_pool_id();

  // What is allocated meanwhile is the pool's: nobody else gets that memory while the graph may be launched.
  cistern::begin_allocate_to_pool(device, pool, cistern::PoolFilter::stream(stream));
  cistern::Graph graph;
  {
    cistern::CaptureGuard capture(stream);
    void* const first = cistern::allocate(kBytes, stream);
    cistern::copy_async(first, input.data(), kBytes, stream);
    void* const second = cistern::allocate(kBytes, stream);
    cistern::copy_async(second, first, kBytes, stream);
    cistern::deallocate(first);  // reusable within the graph, in its order
    cistern::copy_async(output.data(), second, kBytes, stream);
    cistern::deallocate(second);
    graph = capture.end();
  }
  cistern::end_allocate_to_pool(device, pool);

  bool is_right = true;
  for (unsigned char step = 1; step <= 3; ++step) {
    static_cast<unsigned char*>(input.data())[kBytes - 1] = step;
    graph.launch(stream);
    stream.synchronize();
    is_right = is_right && static_cast<const unsigned char*>(output.data())[kBytes - 1] == step;
  }
  std::printf("%zu nodes, launched 3 times: %s\n", graph.node_count(), is_right ? "right" : "wrong");

  graph = cistern::Graph();
  cistern::release_pool(device, pool);  // with the next full flush its memory goes back
  cistern::empty_cache();
  std::printf("%zu bytes are held after it\n", cistern::memory_reserved(device));
  return is_right && cistern::memory_reserved(device) == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
