#pragma once

// Which requests are worth a driver call to be placed well: those whose blocks are live when memory is created.
//
// A class is an eighth of an octave of sizes on one stream. Its harm is the share of its blocks during whose life
// memory was created, the last ones weighing more; a class that is not known yet has all of it.
// Complexity: O(1). Not thread-safe: the heap's lock is held.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/free_runs.h"
#include "allocator/page_size.h"

namespace cistern {

class CreationHarm {
 public:
  static constexpr std::size_t kClasses = 8 * 48;

  // The class of a size of at least one sector: floor(8 log2(sectors)).
  [[nodiscard]] static std::size_t class_of(Sectors sectors);

  // The stream's classes can be kept, so that `ended` needs no host memory. Throws std::bad_alloc, unchanged.
  void add_stream(StreamNumber stream);
  // A block of this size ended.
  void ended(Sectors sectors, StreamNumber stream, bool memory_was_created) {
    ended_of_class(class_of(sectors), stream, memory_was_created);
  }
  void ended_of_class(std::size_t size_class, StreamNumber stream, bool memory_was_created) {
    add_stream(stream);
    double& harm = streams_[static_cast<std::size_t>(stream)][size_class];
    harm += ((memory_was_created ? 1.0 : 0.0) - harm) * kWeightOfLast;
  }
  // So many did, one after the other.
  void ended_of_class(std::size_t size_class, StreamNumber stream, bool memory_was_created, std::int64_t times) {
    if (times <= 0) return;
    add_stream(stream);
    double& harm = streams_[static_cast<std::size_t>(stream)][size_class];
    const double last = memory_was_created ? 1.0 : 0.0;
    constexpr std::int64_t kEnough = 64;  // after which what was before weighs nothing
    harm = last + (times >= kEnough ? 0.0 : (harm - last) * std::pow(1 - kWeightOfLast, static_cast<double>(times)));
  }
  [[nodiscard]] double of(Sectors sectors, StreamNumber stream) const;

 private:
  static constexpr double kWeightOfLast = 0.25;
  using Classes = std::array<double, kClasses>;

  std::vector<Classes> streams_;
};

}  // namespace cistern
