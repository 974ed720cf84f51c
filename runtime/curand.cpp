#include "runtime/curand.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/relaxed_capture.h"
#include "runtime/shared_library.h"

namespace cistern {
namespace {

// cuRAND's declarations as far as they are used here ("cuRAND", "Host API").
using Generator = struct GeneratorTag*;
constexpr int kCurandSuccess = 0;
constexpr int kPhilox4x32_10 = 161;  // CURAND_RNG_PSEUDO_PHILOX4_32_10
constexpr int kLegacyOrder = 103;    // the one that no release of cuRAND changes

struct Curand {
  SharedLibrary library{"cuRAND", "CISTERN_LIBCURAND", {"libcurand.so.10"}};
  int (*create)(Generator* generator, int type) = nullptr;
  int (*destroy)(Generator generator) = nullptr;
  int (*set_order)(Generator generator, int order) = nullptr;
  int (*set_stream)(Generator generator, CUstream stream) = nullptr;
  int (*set_seed)(Generator generator, unsigned long long seed) = nullptr;
  int (*set_offset)(Generator generator, unsigned long long offset) = nullptr;
  int (*words)(Generator generator, unsigned* values, std::size_t count) = nullptr;
  int (*uniform)(Generator generator, float* values, std::size_t count) = nullptr;
  int (*normal)(Generator generator, float* values, std::size_t count, float mean, float deviation) = nullptr;

  Curand() {
    library.find(create, "curandCreateGenerator");
    library.find(destroy, "curandDestroyGenerator");
    library.find(set_order, "curandSetGeneratorOrdering");
    library.find(set_stream, "curandSetStream");
    library.find(set_seed, "curandSetPseudoRandomGeneratorSeed");
    library.find(set_offset, "curandSetGeneratorOffset");
    library.find(words, "curandGenerate");
    library.find(uniform, "curandGenerateUniform");
    library.find(normal, "curandGenerateNormal");
  }
};

// A load that failed is tried again by the next call.
const Curand& curand() {
  static const Curand& curand = *new Curand;
  return curand;
}

void check_curand(int status, const char* call) {
  if (status == kCurandSuccess) return;
  throw LibraryError(status, call, fmt::format("{}: cuRAND's status {} (curandStatus)", call, status));
}

// Generators that nobody uses at the moment. Each belongs to its device's context, and one thread at a
// time may use it.
class IdleGenerators {
 public:
  Generator take(int device) {
    {
      const std::lock_guard lock(mutex_);
      OfDevice& of_device = by_device_[device];
      if (!of_device.idle.empty()) {
        const Generator generator = of_device.idle.back();
        of_device.idle.pop_back();
        return generator;
      }
      of_device.idle.reserve(++of_device.made);  // giving one back asks for no memory
    }
    return make();
  }
  void give_back(int device, Generator generator) noexcept {
    const std::lock_guard lock(mutex_);
    by_device_.find(device)->second.idle.push_back(generator);
  }

 private:
  static Generator make() {
    Generator generator = nullptr;
    check_curand(curand().create(&generator, kPhilox4x32_10), "curandCreateGenerator");
    try {
      check_curand(curand().set_order(generator, kLegacyOrder), "curandSetGeneratorOrdering");
    } catch (...) {
      static_cast<void>(curand().destroy(generator));
      throw;
    }
    return generator;
  }

  struct OfDevice {
    std::size_t made = 0;  // at least as many as there are
    std::vector<Generator> idle;
  };
  std::mutex mutex_;
  std::map<int, OfDevice> by_device_;
};
IdleGenerators& idle_generators() {
  static IdleGenerators& generators = *new IdleGenerators;
  return generators;
}

class BorrowedGenerator {
 public:
  explicit BorrowedGenerator(int device) : device_(device), generator_(idle_generators().take(device)) {}
  ~BorrowedGenerator() { idle_generators().give_back(device_, generator_); }
  BorrowedGenerator(const BorrowedGenerator&) = delete;
  BorrowedGenerator& operator=(const BorrowedGenerator&) = delete;
  [[nodiscard]] Generator get() const noexcept { return generator_; }

 private:
  int device_;
  Generator generator_;
};

template <class Value>
Value* pointer_to(CUdeviceptr address) {
  return reinterpret_cast<Value*>(address);
}

}  // namespace

void curand_fill(const DriverApi& api, int device, const RandomFill& fill, CUstream stream) {
  const Curand& library = curand();
  const RelaxedCapture relaxed(api, "a random fill");
  const BorrowedGenerator borrowed(device);
  const Generator generator = borrowed.get();
  check_curand(library.set_stream(generator, stream), "curandSetStream");
  check_curand(library.set_seed(generator, fill.seed), "curandSetPseudoRandomGeneratorSeed");
  check_curand(library.set_offset(generator, fill.position), "curandSetGeneratorOffset");
  switch (fill.kind) {
    case RandomKind::words:
      return check_curand(library.words(generator, pointer_to<unsigned>(fill.destination), fill.count),
                          "curandGenerate");
    case RandomKind::uniform:
      return check_curand(library.uniform(generator, pointer_to<float>(fill.destination), fill.count),
                          "curandGenerateUniform");
    case RandomKind::normal:
      return check_curand(library.normal(generator, pointer_to<float>(fill.destination), fill.count, fill.mean,
                                         fill.standard_deviation),
                          "curandGenerateNormal");
  }
}

}  // namespace cistern
