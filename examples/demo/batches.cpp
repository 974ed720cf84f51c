#include "batches.h"

#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

namespace cistern::demo {
namespace {

// The sequences that begin at the starts, moved by `shift`, one after the other.
std::vector<Token> gather(const std::vector<Token>& text, const std::vector<std::size_t>& starts, std::size_t length,
                          std::size_t shift) {
  std::vector<Token> tokens;
  tokens.reserve(starts.size() * length);
  for (const std::size_t start : starts) {
    const auto first = std::next(text.begin(), static_cast<std::ptrdiff_t>(start + shift));
    tokens.insert(tokens.end(), first, std::next(first, static_cast<std::ptrdiff_t>(length)));
  }
  return tokens;
}

}  // namespace

BatchCopy::BatchCopy(const Context& context, const std::vector<Token>& text, const std::vector<std::size_t>& starts,
                     std::size_t length)
    : context_(context), tokens_(gather(text, starts, length, 0)), targets_(gather(text, starts, length, 1)) {
  const Stream& stream = context.copies();
  batch_ = {Tensor<Token>(context, starts.size(), length, stream),
            Tensor<Token>(context, starts.size(), length, stream)};
  copy_async(batch_.tokens.data(), tokens_.data(), tokens_.size() * sizeof(Token), stream);
  copy_async(batch_.targets.data(), targets_.data(), targets_.size() * sizeof(Token), stream);
  copied_.record(stream);
}

BatchCopy::~BatchCopy() {
  try {
    copied_.synchronize();
  } catch (const std::exception&) {
    // The driver failed: nothing will read the host's side any more.
  }
}

const Batch& BatchCopy::use_on_compute() {
  context_.compute().wait_event(copied_);
  batch_.tokens.record_stream(context_.compute());
  batch_.targets.record_stream(context_.compute());
  return batch_;
}

BatchLoader::BatchLoader(const Context& context, const std::vector<Token>& text, std::size_t sequences,
                         std::size_t length, std::uint64_t seed)
    : context_(context), text_(text), sequences_(sequences), length_(length), random_(seed) {
  if (text.size() <= length) {
    throw std::invalid_argument("a text of " + std::to_string(text.size()) + " characters, expected more than " +
                                std::to_string(length));
  }
}

std::unique_ptr<BatchCopy> BatchLoader::next() {
  std::unique_ptr<BatchCopy> current = ahead_ ? std::move(ahead_) : draw(sequences_);
  ahead_ = draw(sequences_);
  return current;
}

std::unique_ptr<BatchCopy> BatchLoader::draw(std::size_t sequences) {
  std::uniform_int_distribution<std::size_t> place(0, text_.size() - length_ - 1);
  std::vector<std::size_t> starts(sequences);
  for (std::size_t& start : starts) start = place(random_);
  return std::make_unique<BatchCopy>(context_, text_, starts, length_);
}

}  // namespace cistern::demo
