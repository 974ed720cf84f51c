#include "tests/contract/native_doors.h"

#include <cistern/c_api.h>
#include <cistern/cistern.h>

#include <map>
#include <utility>

namespace cistern::contract {
namespace {

class FreeFunctions final : public Door {
 public:
  void* allocate(std::size_t bytes, const Stream& stream) override { return cistern::allocate(bytes, stream); }
  Outcome free(void* pointer, std::size_t, const Stream& stream) override {
    return said_by([&] { deallocate(pointer, stream); });
  }
};

class SizedFunctions final : public Door {
 public:
  void* allocate(std::size_t bytes, const Stream& stream) override { return allocate_aligned(bytes, 256, stream); }
  Outcome free(void* pointer, std::size_t bytes, const Stream& stream) override {
    return said_by([&] { deallocate_sized(pointer, bytes, stream); });
  }
  Outcome free_on_handle(void* pointer, std::size_t bytes, StreamHandle stream) override {
    return said_by([&] { deallocate_sized(pointer, bytes, stream, 0); });
  }
};

class OwnAllocator final : public Door {
 public:
  OwnAllocator() : allocator_({nullptr, AllocatorOptions::parse(std::getenv("CISTERN_ALLOC_CONF"))}) {}
  void* allocate(std::size_t bytes, const Stream& stream) override { return allocator_.allocate(bytes, stream); }
  Outcome free(void* pointer, std::size_t, const Stream& stream) override {
    return said_by([&] { allocator_.deallocate(pointer, stream.native_handle()); });
  }
  Outcome on_device(int device) override {
    return thrown_by([&] { static_cast<void>(allocator_.allocate(1024, nullptr, device)); });
  }
  MemoryStats stats() const override { return allocator_.memory_stats(0); }

 private:
  CachingAllocator allocator_;
};

class Buffers final : public Door {
 public:
  void* allocate(std::size_t bytes, const Stream& stream) override {
    DeviceBuffer<std::byte> buffer(bytes, stream);
    void* const pointer = buffer.data();
    if (pointer != nullptr) buffers_.emplace(pointer, std::move(buffer));
    return pointer;
  }
  Outcome free(void* pointer, std::size_t, const Stream& stream) override {
    return said_by([&] {
      if (pointer != nullptr) buffers_.at(pointer).record_stream(stream);
      buffers_.erase(pointer);
    });
  }

 private:
  std::map<void*, DeviceBuffer<std::byte>> buffers_;
};

class UniquePointers final : public Door {
 public:
  void* allocate(std::size_t bytes, const Stream& stream) override {
    return make_device_unique<std::byte[]>(bytes, stream).release();
  }
  Outcome free(void* pointer, std::size_t, const Stream& stream) override {
    return said_by([&] {
      const DeviceUniquePtr<std::byte[]> owner(static_cast<std::byte*>(pointer));
      record_stream(pointer, stream);
    });
  }
};

class StandardAllocator final : public Door {
 public:
  void* allocate(std::size_t bytes, const Stream& stream) override {
    return StreamAllocator<std::byte>(stream).allocate(bytes);
  }
  Outcome free(void* pointer, std::size_t bytes, const Stream& stream) override {
    return said_by([&] { StreamAllocator<std::byte>(stream).deallocate(static_cast<std::byte*>(pointer), bytes); });
  }
};

class C final : public Door {
 public:
  void* allocate(std::size_t bytes, const Stream& stream) override {
    void* pointer = nullptr;
    const cistern_status status = cistern_allocate(bytes, stream.device().index(), stream.native_handle(), &pointer);
    EXPECT_EQ(status, CISTERN_SUCCESS) << cistern_last_error();
    return pointer;
  }
  Outcome free(void* pointer, std::size_t bytes, const Stream& stream) override {
    return outcome(cistern_deallocate_sized(pointer, bytes, stream.device().index(), stream.native_handle()));
  }
  Outcome refused(std::size_t bytes, const Stream& stream) override {
    void* pointer = this;
    const Outcome outcome =
        C::outcome(cistern_allocate(bytes, stream.device().index(), stream.native_handle(), &pointer));
    EXPECT_EQ(pointer, this);
    return outcome;
  }
  Outcome on_device(int device) override {
    void* pointer = nullptr;
    return outcome(cistern_allocate(1024, device, nullptr, &pointer));
  }
  Outcome free_on_handle(void* pointer, std::size_t bytes, StreamHandle stream) override {
    return outcome(cistern_deallocate_sized(pointer, bytes, 0, stream));
  }
  Outcome without_result() override { return outcome(cistern_allocate(1024, 0, nullptr, nullptr)); }

 private:
  static Outcome outcome(cistern_status status) {
    if (status == CISTERN_SUCCESS) return {};
    CISTERN_STRUCT(cistern_out_of_memory_report, report);
    switch (status) {
      case CISTERN_ERROR_INVALID_ARGUMENT:
        return {Fault::invalid_argument, cistern_last_error()};
      case CISTERN_ERROR_DRIVER:
        return {Fault::driver, cistern_last_error()};
      case CISTERN_ERROR_OUT_OF_MEMORY:
        EXPECT_EQ(cistern_last_out_of_memory(&report), CISTERN_SUCCESS);
        return {Fault::out_of_memory, cistern_last_error(), report.requested_bytes};
      default:
        return {Fault::other, cistern_last_error()};
    }
  }
};

template <class Kind>
std::unique_ptr<Door> open() {
  return std::make_unique<Kind>();
}

}  // namespace

std::vector<DoorKind> native_doors() {
  std::vector<DoorKind> kinds(7);
  kinds[0] = {"FreeFunctions", open<FreeFunctions>};
  kinds[1] = {"SizedFunctions", open<SizedFunctions>};
  kinds[1].has_sizes = kinds[1].takes_handles = true;
  kinds[2] = {"OwnAllocator", open<OwnAllocator>};
  kinds[2].is_of_process = false;
  kinds[3] = {"DeviceBuffer", open<Buffers>};
  kinds[3].frees_any_pointer = false;
  kinds[4] = {"UniquePtr", open<UniquePointers>};
  kinds[5] = {"StreamAllocator", open<StandardAllocator>};
  kinds[5].has_sizes = true;
  kinds[6] = {"C", open<C>};
  kinds[6].has_sizes = kinds[6].takes_handles = kinds[6].has_results = true;
  return kinds;
}

}  // namespace cistern::contract
