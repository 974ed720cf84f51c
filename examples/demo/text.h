#pragma once

// The text that the demo learns, as characters and as numbers, and what simple models make of it.
//
// Thread safety: values.

#include "operations.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cistern::demo {

// A text in two parts: one to learn from, and one that only measures what was learnt.
struct Corpus {
  std::string training;
  std::string held_out;
  std::string description;  // where it comes from, for the reader
};

// The licence texts of a Debian system (base-files installs them). One whole licence is held
// out, of which there is no other version: versions of one licence share whole paragraphs.
// Throws std::runtime_error, naming the folder, if it holds none of them.
[[nodiscard]] Corpus read_licences(const std::filesystem::path& folder = "/usr/share/common-licenses");
// Any text; the last tenth is held out. Throws std::runtime_error, naming the file, if it cannot
// be read or is shorter than 10,000 characters.
[[nodiscard]] Corpus read_file(const std::filesystem::path& path);

// Numbers the characters (bytes) that occur in a corpus.
class Vocabulary {
 public:
  explicit Vocabulary(const Corpus& corpus);
  [[nodiscard]] std::size_t size() const noexcept { return characters_.size(); }
  // Throws std::invalid_argument, naming it, for a character that is not in the corpus.
  [[nodiscard]] std::vector<Token> encode(std::string_view text) const;
  [[nodiscard]] std::string decode(const std::vector<Token>& tokens) const;

 private:
  std::string characters_;  // in ascending order; a character's number is its place
};

// Mean losses in nats a character, of models that count: each character by its frequency in the
// training text, and by its frequency after the character before it. One is added to each count.
[[nodiscard]] double unigram_loss(const std::vector<Token>& training, const std::vector<Token>& held_out,
                                  std::size_t vocabulary);
[[nodiscard]] double bigram_loss(const std::vector<Token>& training, const std::vector<Token>& held_out,
                                 std::size_t vocabulary);

}  // namespace cistern::demo
