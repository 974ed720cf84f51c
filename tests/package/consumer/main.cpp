// A program of a user's: what it needs of the library is there, and errors cross its border as their types.

#include <cistern/cistern.h>
#include <cistern/integrations/pmr.h>

#include <cstdio>
#include <new>
#include <unordered_set>
#include <vector>

int main() {
  const cistern::Stream stream = cistern::Stream::create();
  std::vector<int> values{1, 2, 3, 4}, back(4);
  cistern::PinnedMemoryResource pinned;
  std::pmr::vector<int> staging(values.begin(), values.end(), &pinned);
  {
    cistern::DeviceBuffer<int> buffer(values.size(), stream);
    cistern::copy_async(buffer.data(), staging.data(), buffer.size_bytes(), stream);
    cistern::copy_async(back.data(), buffer.data(), buffer.size_bytes(), stream);
    stream.synchronize();
  }
  bool refused = false;
  try {
    cistern::deallocate(cistern::allocate(std::size_t{1} << 50, stream));
  } catch (const cistern::OutOfMemoryError& error) {
    refused = error.report().requested_bytes == std::size_t{1} << 50;
  }
  bool is_bad_alloc = false;
  try {
    cistern::deallocate(cistern::allocate(std::size_t{1} << 50, stream));
  } catch (const std::bad_alloc&) {
    is_bad_alloc = true;
  }
  const std::unordered_set<cistern::MemoryHandle> handles(3);  // its hash is the library's
  const bool holds = handles.empty() && back == values && refused && is_bad_alloc && cistern::memory_allocated() == 0;
  std::puts(holds ? "C++: all is as it should be" : "C++: something is wrong");
  return holds ? 0 : 1;
}
