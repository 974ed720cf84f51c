#include "text.h"

#include <array>
#include <bitset>
#include <cmath>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace cistern::demo {
namespace {

constexpr std::array kTrainingLicences{"GPL-3",    "LGPL-2.1", "GFDL-1.3", "MPL-1.1",
                                       "Artistic", "CC0-1.0",  "GPL-1",    "MPL-2.0"};
constexpr const char* kHeldOutLicence = "Apache-2.0";

// Runs of blanks become one: indentation and centred headings would be much of what is learnt.
std::string with_single_spaces(const std::string& text) {
  std::string result;
  for (const char each : text) {
    const char character = each == '\t' ? ' ' : each;
    if (character != ' ' || (!result.empty() && result.back() != ' ')) result += character;
  }
  return result;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.is_open() || file.bad()) throw std::runtime_error("the text " + path.string() + " cannot be read");
  return with_single_spaces(text.str());
}

}  // namespace

Corpus read_licences(const std::filesystem::path& folder) {
  Corpus corpus;
  std::string names;
  for (const char* name : kTrainingLicences) {
    if (!std::filesystem::is_regular_file(folder / name)) continue;
    corpus.training += read(folder / name);
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  if (corpus.training.empty() || !std::filesystem::is_regular_file(folder / kHeldOutLicence)) {
    throw std::runtime_error("the folder " + folder.string() + " does not hold Debian's licence texts (" +
                             kHeldOutLicence + " and others, of the package base-files): name a text with --text FILE");
  }
  corpus.held_out = read(folder / kHeldOutLicence);
  corpus.description = names + " of " + folder.string() + "; held out: " + kHeldOutLicence;
  return corpus;
}

Corpus read_file(const std::filesystem::path& path) {
  constexpr std::size_t kLeast = 10000;
  const std::string text = read(path);
  if (text.size() < kLeast) {
    throw std::runtime_error("the text " + path.string() + " has " + std::to_string(text.size()) +
                             " characters, expected at least " + std::to_string(kLeast));
  }
  const std::size_t split = text.size() / 10 * 9;
  return {text.substr(0, split), text.substr(split), path.string() + "; held out: its last tenth"};
}

Vocabulary::Vocabulary(const Corpus& corpus) {
  std::bitset<256> occurs;
  for (const std::string* part : {&corpus.training, &corpus.held_out}) {
    for (const char each : *part) occurs.set(static_cast<unsigned char>(each));
  }
  for (std::size_t value = 0; value < occurs.size(); ++value) {
    if (occurs.test(value)) characters_ += static_cast<char>(static_cast<unsigned char>(value));
  }
}

std::vector<Token> Vocabulary::encode(std::string_view text) const {
  std::vector<Token> tokens;
  tokens.reserve(text.size());
  for (const char each : text) {
    const std::size_t place = characters_.find(each);
    if (place == std::string::npos) {
      throw std::invalid_argument("the character with the code " + std::to_string(static_cast<unsigned char>(each)) +
                                  " does not occur in the text");
    }
    tokens.push_back(static_cast<Token>(place));
  }
  return tokens;
}

std::string Vocabulary::decode(const std::vector<Token>& tokens) const {
  std::string text;
  for (const Token token : tokens) text += characters_.at(static_cast<std::size_t>(token));
  return text;
}

namespace {

std::size_t index(Token token) { return static_cast<std::size_t>(token); }

}  // namespace

double unigram_loss(const std::vector<Token>& training, const std::vector<Token>& held_out, std::size_t vocabulary) {
  std::vector<double> counts(vocabulary, 1.0);
  for (const Token token : training) counts[index(token)] += 1.0;
  const double total = static_cast<double>(training.size() + vocabulary);
  double loss = 0.0;
  for (const Token token : held_out) loss -= std::log(counts[index(token)] / total);
  return loss / static_cast<double>(held_out.size());
}

double bigram_loss(const std::vector<Token>& training, const std::vector<Token>& held_out, std::size_t vocabulary) {
  std::vector<double> counts(vocabulary * vocabulary, 1.0);
  std::vector<double> totals(vocabulary, static_cast<double>(vocabulary));
  for (std::size_t i = 1; i < training.size(); ++i) {
    counts[index(training[i - 1]) * vocabulary + index(training[i])] += 1.0;
    totals[index(training[i - 1])] += 1.0;
  }
  double loss = 0.0;
  for (std::size_t i = 1; i < held_out.size(); ++i) {
    loss -= std::log(counts[index(held_out[i - 1]) * vocabulary + index(held_out[i])] / totals[index(held_out[i - 1])]);
  }
  return loss / static_cast<double>(held_out.size() - 1);
}

}  // namespace cistern::demo
