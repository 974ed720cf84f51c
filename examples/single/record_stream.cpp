// A block that a second stream reads: record_stream keeps its memory until that stream is done with it.
//   CISTERN_DEVICE=simulated:races=report cistern_record_stream     (or cuda)

#include <cistern/cistern.h>

#include <cstdio>
#include <exception>
#include <vector>

int main() try {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const cistern::Stream compute = cistern::Stream::create(), copies = cistern::Stream::create();
  cistern::PinnedMemory back(kBytes);

  void* const block = cistern::allocate(kBytes, compute);
  cistern::fill_async(block, 42, kBytes, compute);
  copies.wait_stream(compute);  // the copy reads what was filled
  cistern::copy_async(back.data(), block, kBytes, copies);
  cistern::record_stream(block, copies);  // without this the next request could get it now
  cistern::deallocate(block);

  void* const early = cistern::allocate(kBytes, compute);  // the copy may still read the first block
  std::printf("while the copy is under way: %s\n", early == block ? "the same block" : "another block");
  copies.synchronize();
  void* const late = cistern::allocate(kBytes, compute);  // it is free now
  std::printf("after it: %s\n", late == block || early == block ? "the same block" : "another block");

  const bool is_whole = static_cast<const unsigned char*>(back.data())[kBytes - 1] == 42;
  cistern::deallocate(early);
  cistern::deallocate(late);
  return is_whole && (late == block || early == block) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
