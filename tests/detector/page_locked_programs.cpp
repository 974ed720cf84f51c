// Page-locked host memory: a copy reads and writes it when its turn comes, not at the call.

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

constexpr std::size_t kBytes = 4 * KiB;

char* page_locked(World& w) {
  void* pointer = nullptr;
  EXPECT_EQ(w.api.mem_host_alloc(&pointer, kBytes, 0), CUDA_SUCCESS);
  return static_cast<char*>(pointer);
}

void source_rewritten_before_the_copy(World& w) {
  const StreamHandle stream = w.stream();
  char* source = page_locked(w);
  char* data = w.allocate(kBytes);
  w.host_writes(source, kBytes);
  w.copy(data, source, kBytes, stream);
  if (w.is_mended) w.synchronize(stream);
  w.host_writes(source, kBytes);
}

// The mended program relies on staging: pageable memory is read at the call.
void registered_source_taken_for_a_pageable_one(World& w) {
  const StreamHandle stream = w.stream();
  std::vector<char>& source = w.host(kBytes);
  if (!w.is_mended) {
    EXPECT_EQ(w.api.mem_host_register(source.data(), kBytes, 0), CUDA_SUCCESS);
  }
  char* data = w.allocate(kBytes);
  w.copy(data, source.data(), kBytes, stream);
  w.host_writes(source.data(), kBytes);
}

void result_read_before_the_copy(World& w) {
  const StreamHandle stream = w.stream();
  char* result = page_locked(w);
  char* data = w.allocate(kBytes);
  w.copy(result, data, kBytes, stream);
  if (w.is_mended) w.synchronize(stream);
  w.host_reads(result, kBytes);
}

void written_by_a_kernel_while_a_copy_reads_it(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* shared = page_locked(w);
  char* data = w.allocate(kBytes);
  w.copy(data, shared, kBytes, stream);
  if (w.is_mended) w.order(stream, other);
  EXPECT_TRUE(w.write(other, shared, kBytes));
}

void freed_under_a_copy(World& w) {
  const StreamHandle stream = w.stream();
  char* source = page_locked(w);
  char* data = w.allocate(kBytes);
  w.copy(data, source, kBytes, stream);
  if (w.is_mended) w.synchronize(stream);
  EXPECT_EQ(w.api.mem_free_host(source), CUDA_SUCCESS);
}

void unregistered_under_a_copy(World& w) {
  const StreamHandle stream = w.stream();
  std::vector<char>& source = w.host(kBytes);
  EXPECT_EQ(w.api.mem_host_register(source.data(), kBytes, 0), CUDA_SUCCESS);
  char* data = w.allocate(kBytes);
  w.copy(data, source.data(), kBytes, stream);
  if (w.is_mended) w.synchronize(stream);
  EXPECT_EQ(w.api.mem_host_unregister(source.data()), CUDA_SUCCESS);
}

// The mended program's copy took the memory for pageable, and does still.
void unregistered_under_a_copy_out_of_the_device(World& w) {
  const StreamHandle stream = w.stream();
  std::vector<char>& result = w.host(kBytes);
  char* data = w.allocate(kBytes);
  if (w.is_mended) w.copy(result.data(), data, kBytes, stream);
  EXPECT_EQ(w.api.mem_host_register(result.data(), kBytes, 0), CUDA_SUCCESS);
  if (!w.is_mended) w.copy(result.data(), data, kBytes, stream);
  EXPECT_EQ(w.api.mem_host_unregister(result.data()), CUDA_SUCCESS);
  w.synchronize(stream);
}

void copied_from_after_its_free(World& w) {
  const StreamHandle stream = w.stream();
  char* source = page_locked(w);
  char* data = w.allocate(kBytes);
  if (w.is_mended) w.copy(data, source, kBytes, stream);
  w.synchronize(stream);
  EXPECT_EQ(w.api.mem_free_host(source), CUDA_SUCCESS);
  if (!w.is_mended) {
    EXPECT_EQ(w.copy(data, source, kBytes, stream), CUDA_ERROR_INVALID_VALUE);
  }
}

void freed_twice(World& w) {
  char* pointer = page_locked(w);
  EXPECT_EQ(w.api.mem_free_host(pointer), CUDA_SUCCESS);
  if (!w.is_mended) {
    EXPECT_EQ(w.api.mem_free_host(pointer), CUDA_ERROR_INVALID_VALUE);
  }
}

void read_by_the_host_after_its_free(World& w) {
  char* pointer = page_locked(w);
  if (w.is_mended) w.host_reads(pointer, kBytes);
  EXPECT_EQ(w.api.mem_free_host(pointer), CUDA_SUCCESS);
  if (!w.is_mended) w.host_reads(pointer, kBytes);
}

}  // namespace

std::vector<Program> page_locked_programs() {
  constexpr RaceKind race = RaceKind::host_race;
  const SimulatedOptions free_drive{.drive = Drive::free};
  return {
      {"PageLockedSourceRewrittenBeforeTheCopy", race, source_rewritten_before_the_copy},
      {"PageLockedSourceRewrittenBeforeTheCopyOnTheFreeDrive", race, source_rewritten_before_the_copy, free_drive},
      {"RegisteredSourceTakenForAPageableOne", race, registered_source_taken_for_a_pageable_one},
      {"PageLockedResultReadBeforeTheCopy", race, result_read_before_the_copy},
      {"PageLockedResultReadBeforeTheCopyOnTheFreeDrive", race, result_read_before_the_copy, free_drive},
      {"PageLockedWrittenByAKernelWhileACopyReadsIt", RaceKind::data_race, written_by_a_kernel_while_a_copy_reads_it},
      {"PageLockedFreedUnderACopy", RaceKind::free_in_use, freed_under_a_copy},
      {"PageLockedFreedUnderACopyOnTheFreeDrive", RaceKind::free_in_use, freed_under_a_copy, free_drive},
      {"RegisteredAndUnregisteredUnderACopy", RaceKind::free_in_use, unregistered_under_a_copy},
      {"RegisteredAndUnregisteredUnderACopyOnTheFreeDrive", RaceKind::free_in_use, unregistered_under_a_copy,
       free_drive},
      {"RegisteredAndUnregisteredUnderACopyOutOfTheDevice", RaceKind::free_in_use,
       unregistered_under_a_copy_out_of_the_device},
      {"PageLockedCopiedFromAfterItsFree", RaceKind::dead_memory, copied_from_after_its_free},
      {"PageLockedFreedTwice", RaceKind::invalid_free, freed_twice},
      {"PageLockedReadByTheHostAfterItsFree", RaceKind::dead_memory, read_by_the_host_after_its_free},
  };
}

}  // namespace cistern::testing
