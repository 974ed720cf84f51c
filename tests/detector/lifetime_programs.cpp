// Memory that is gone, too small, or somebody else's.

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

// A reservation of one granule, mapped on one device and open to it.
class Mapping {
 public:
  explicit Mapping(World& world, std::size_t handles = 1) : api_(world.api), bytes_(handles * kBytes) {
    EXPECT_EQ(api_.mem_address_reserve(&address_, bytes_, 0, 0, 0), CUDA_SUCCESS);
    for (std::size_t i = 0; i < handles; ++i) {
      handles_.push_back(create());
      EXPECT_EQ(api_.mem_map(address_ + i * kBytes, kBytes, 0, handles_.back(), 0), CUDA_SUCCESS);
    }
    open(address_, bytes_);
  }
  // The first handle at another address, too.
  char* alias() {
    CUdeviceptr address = 0;
    EXPECT_EQ(api_.mem_address_reserve(&address, kBytes, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(api_.mem_map(address, kBytes, 0, handles_.front(), 0), CUDA_SUCCESS);
    open(address, kBytes);
    return reinterpret_cast<char*>(address);
  }
  CUresult unmap() { return api_.mem_unmap(address_, bytes_); }
  char* memory() const { return reinterpret_cast<char*>(address_); }
  static constexpr std::size_t kBytes = 2 * MiB;

 private:
  CUmemGenericAllocationHandle create() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(api_.mem_create(&handle, kBytes, &properties, 0), CUDA_SUCCESS);
    return handle;
  }
  void open(CUdeviceptr address, std::size_t bytes) {
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(api_.mem_set_access(address, bytes, &access, 1), CUDA_SUCCESS);
  }

  const DriverApi& api_;
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
  std::vector<CUmemGenericAllocationHandle> handles_;
};

void copy_from_freed_memory(World& w) {
  const StreamHandle stream = w.stream();
  char* source = w.allocate();
  char* destination = w.allocate();
  if (w.is_mended) w.copy(destination, source, 4 * KiB, stream);
  w.free(source);
  if (!w.is_mended) {
    EXPECT_EQ(w.copy(destination, source, 4 * KiB, stream), CUDA_ERROR_INVALID_VALUE);
  }
}

void kernel_on_freed_memory(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate();
  if (w.is_mended) {
    EXPECT_TRUE(w.write(stream, data));
  }
  w.free(data);
  if (!w.is_mended) {
    EXPECT_FALSE(w.write(stream, data));
  }
}

void kernel_on_unmapped_memory(World& w) {
  const StreamHandle stream = w.stream();
  Mapping mapping(w);
  if (w.is_mended) w.write(stream, mapping.memory());
  w.synchronize(stream);
  EXPECT_EQ(mapping.unmap(), CUDA_SUCCESS);
  if (!w.is_mended) {
    EXPECT_FALSE(w.write(stream, mapping.memory()));
  }
}

void unmapped_while_in_use(World& w) {
  const StreamHandle stream = w.stream();
  Mapping mapping(w);
  w.write(stream, mapping.memory());
  if (w.is_mended) w.synchronize(stream);
  EXPECT_EQ(mapping.unmap(), CUDA_SUCCESS);
}

void aliased_bytes_taken_for_two_buffers(World& w) {
  const StreamHandle first = w.stream(), second = w.stream();
  Mapping mapping(w);
  char* alias = mapping.alias();
  w.write(first, mapping.memory());
  w.write(second, w.is_mended ? alias + 4 * KiB : alias);
}

void past_the_end_of_a_block(World& w) {
  const StreamHandle stream = w.stream();
  char* block = w.block(stream, 4 * KiB);
  w.write(stream, block, w.is_mended ? 4 * KiB : 4 * KiB + 1);
}

void into_the_next_block(World& w) {
  const StreamHandle stream = w.stream();
  char* first = w.block(stream, 4 * KiB);
  char* second = w.block(stream, 4 * KiB);
  EXPECT_EQ(second, first + 4 * KiB);
  w.fill(first, w.is_mended ? 4 * KiB : 8 * KiB, stream);
}

void elements_taken_for_bytes(World& w) {
  const StreamHandle stream = w.stream();
  const std::size_t elements = 1024;
  char* block = w.block(stream, w.is_mended ? elements * sizeof(float) : elements);
  w.kernel("scale", stream, {}, {{block, elements * sizeof(float)}});
}

void past_the_end_of_an_allocation(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate(2 * MiB);
  w.allocate(2 * MiB);
  EXPECT_EQ(w.fill(data, 2 * MiB + (w.is_mended ? 0 : 512), stream),
            w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

// The length is a difference that went below 0: the range runs past the last address.
void a_length_below_zero(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate(4 * KiB);
  const std::size_t left = w.is_mended ? 64 : std::size_t{0} - 64;
  EXPECT_EQ(w.write(stream, data, left), w.is_mended);
}

void a_length_below_zero_on_the_host(World& w) {
  char* data = w.allocate(4 * KiB);
  w.host_reads(data, w.is_mended ? 64 : std::size_t{0} - 64);
}

void past_the_end_of_a_mapping(World& w) {
  const StreamHandle stream = w.stream();
  const Mapping mapping(w, 2);
  EXPECT_EQ(w.write(stream, mapping.memory(), 2 * Mapping::kBytes + (w.is_mended ? 0 : 1)), w.is_mended);
}

// The allocator holds the segment, but nobody was given this part of it.
void memory_that_was_not_handed_out(World& w) {
  const StreamHandle stream = w.stream();
  char* block = w.block(stream, 4 * KiB);
  w.write(stream, w.is_mended ? block : block + 64 * KiB);
}

void a_pointer_kept_across_empty_cache(World& w) {
  const StreamHandle stream = w.stream();
  char* block = w.block(stream);
  if (w.is_mended) w.write(stream, block);
  w.heap.deallocate(block);
  w.heap.empty_cache();
  if (!w.is_mended) {
    EXPECT_FALSE(w.write(stream, block));
  }
}

void double_free(World& w) {
  char* data = w.allocate();
  EXPECT_EQ(w.free(data), CUDA_SUCCESS);
  if (!w.is_mended) {
    EXPECT_EQ(w.free(data), CUDA_ERROR_INVALID_VALUE);
  }
}

void block_deallocated_twice(World& w) {
  const StreamHandle stream = w.stream();
  char* block = w.block(stream);
  w.write(stream, block);
  w.heap.deallocate(block);
  if (!w.is_mended) w.heap.deallocate(block);
}

// Memory is one driver's own: another's streams know nothing of it.
void kernel_on_another_drivers_memory(World& w) {
  World other(true);
  const StreamHandle stream = w.stream();
  char* data = w.is_mended ? w.allocate() : other.allocate();
  w.use(0);
  EXPECT_EQ(w.write(stream, data), w.is_mended);
}

void copy_from_another_drivers_memory(World& w) {
  World other(true);
  const StreamHandle stream = w.stream();
  char* source = w.is_mended ? w.allocate() : other.allocate();
  w.use(0);
  char* data = w.allocate();
  w.copy(data, source, 4 * KiB, stream);
  w.synchronize(stream);
}

void mapping_that_is_not_open_to_the_device(World& w) {
  const StreamHandle stream = w.stream(w.is_mended ? 0 : 1);
  const Mapping mapping(w);
  EXPECT_EQ(w.write(stream, mapping.memory()), w.is_mended);
}

void free_of_an_address_inside(World& w) {
  char* data = w.allocate();
  EXPECT_EQ(w.free(w.is_mended ? data : data + 512), w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

void block_told_free_twice(World& w) {
  const StreamHandle stream = w.stream();
  const auto address = reinterpret_cast<CUdeviceptr>(w.allocate());
  w.api.note_allocate(address, 4 * KiB, stream);
  w.api.note_free(address, 4 * KiB, stream);
  if (!w.is_mended) w.api.note_free(address, 4 * KiB, stream);
}

void block_given_back_to_the_driver(World& w) {
  const StreamHandle stream = w.stream();
  char* first = w.block(stream);
  char* second = w.block(stream);
  if (w.is_mended) {
    w.heap.deallocate(second);
  } else {
    EXPECT_EQ(w.free(second), CUDA_ERROR_INVALID_VALUE);
  }
  w.heap.deallocate(first);
}

void freed_by_the_driver_while_another_device_copies(World& w) {
  const StreamHandle stream = w.stream(1);
  std::vector<char>& result = w.host();
  char* data = w.allocate();  // on device 0, whose work the free waits for
  w.copy(result.data(), data, result.size(), stream);
  if (w.is_mended) w.synchronize(stream);
  w.free(data);
}

}  // namespace

std::vector<Program> lifetime_programs() {
  return {
      {"CopyFromFreedMemory", RaceKind::dead_memory, copy_from_freed_memory},
      {"KernelOnFreedMemory", RaceKind::dead_memory, kernel_on_freed_memory},
      {"KernelOnUnmappedMemory", RaceKind::dead_memory, kernel_on_unmapped_memory},
      {"UnmappedWhileInUse", RaceKind::free_in_use, unmapped_while_in_use},
      {"AliasedBytesTakenForTwoBuffers", RaceKind::data_race, aliased_bytes_taken_for_two_buffers},
      {"PastTheEndOfABlock", RaceKind::out_of_bounds, past_the_end_of_a_block},
      {"IntoTheNextBlock", RaceKind::out_of_bounds, into_the_next_block},
      {"ElementsTakenForBytes", RaceKind::out_of_bounds, elements_taken_for_bytes},
      {"PastTheEndOfAnAllocation", RaceKind::out_of_bounds, past_the_end_of_an_allocation},
      {"ALengthBelowZero", RaceKind::out_of_bounds, a_length_below_zero},
      {"ALengthBelowZeroOnTheHost", RaceKind::out_of_bounds, a_length_below_zero_on_the_host},
      {"PastTheEndOfAMapping", RaceKind::out_of_bounds, past_the_end_of_a_mapping},
      {"MemoryThatWasNotHandedOut", RaceKind::dead_memory, memory_that_was_not_handed_out},
      {"APointerKeptAcrossEmptyCache", RaceKind::dead_memory, a_pointer_kept_across_empty_cache},
      {"DoubleFree", RaceKind::invalid_free, double_free},
      {"BlockDeallocatedTwice", RaceKind::invalid_free, block_deallocated_twice},
      {"KernelOnAnotherDriversMemory", RaceKind::foreign_memory, kernel_on_another_drivers_memory},
      {"CopyFromAnotherDriversMemory", RaceKind::foreign_memory, copy_from_another_drivers_memory},
      {"MappingThatIsNotOpenToTheDevice",
       RaceKind::foreign_memory,
       mapping_that_is_not_open_to_the_device,
       {.devices = 2}},
      {"FreeOfAnAddressInside", RaceKind::invalid_free, free_of_an_address_inside},
      {"BlockToldFreeTwice", RaceKind::invalid_free, block_told_free_twice},
      {"BlockGivenBackToTheDriver", RaceKind::invalid_free, block_given_back_to_the_driver},
      {"FreedByTheDriverWhileAnotherDeviceCopies",
       RaceKind::free_in_use,
       freed_by_the_driver_while_another_device_copies,
       {.devices = 2}},
  };
}

}  // namespace cistern::testing
