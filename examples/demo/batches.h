#pragma once

// Batches of text on their way to the device: copied on a stream of their own, one ahead of
// the compute stream that uses them.
//
// Not thread-safe. The context and the text must outlive the loader.

#include "operations.h"

#include <cistern/event.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace cistern::demo {

// Sequences on the device, one a row, and the same moved by one: what comes after each character.
struct Batch {
  Tensor<Token> tokens, targets;
};

// A batch and its copy to the device; keeps the host's side of the copy until that is done.
class BatchCopy {
 public:
  // Sequence i begins at text[starts[i]] and has `length` tokens, one of them left after its end.
  // Allocates on the copy stream; throws OutOfMemoryError.
  BatchCopy(const Context& context, const std::vector<Token>& text, const std::vector<std::size_t>& starts,
            std::size_t length);
  // Waits for the copy: the host's side goes.
  ~BatchCopy();
  BatchCopy(const BatchCopy&) = delete;
  BatchCopy& operator=(const BatchCopy&) = delete;

  // The batch, for work on the compute stream from now on, which waits there for the copy.
  [[nodiscard]] const Batch& use_on_compute();

 private:
  const Context& context_;
  std::vector<Token> tokens_, targets_;  // the host's side
  Batch batch_;
  Event copied_;
};

// Draws random places of a text, one batch ahead.
class BatchLoader {
 public:
  // Throws std::invalid_argument if the text is not longer than a sequence.
  BatchLoader(const Context& context, const std::vector<Token>& text, std::size_t sequences, std::size_t length,
              std::uint64_t seed);
  // The next batch, whose copy was started by the call before; starts the next one's copy.
  [[nodiscard]] std::unique_ptr<BatchCopy> next();
  // A batch of another number of sequences, beside the order of the others.
  [[nodiscard]] std::unique_ptr<BatchCopy> draw(std::size_t sequences);

 private:
  const Context& context_;
  const std::vector<Token>& text_;
  std::size_t sequences_, length_;
  std::mt19937_64 random_;
  std::unique_ptr<BatchCopy> ahead_;
};

}  // namespace cistern::demo
