#include "stats/utf8.h"

#include <array>

namespace cistern {
namespace {

// Which first bytes begin a character of how many bytes, and what its second byte may be:
// the narrower ranges exclude overlong forms, surrogates and values above U+10FFFF.
struct LeadRange {
  unsigned char first, last;
  std::size_t bytes;
  unsigned char second_first, second_last;
};
constexpr std::array<LeadRange, 8> kLeadRanges{{
    {0xC2, 0xDF, 2, 0x80, 0xBF},
    {0xE0, 0xE0, 3, 0xA0, 0xBF},
    {0xE1, 0xEC, 3, 0x80, 0xBF},
    {0xED, 0xED, 3, 0x80, 0x9F},
    {0xEE, 0xEF, 3, 0x80, 0xBF},
    {0xF0, 0xF0, 4, 0x90, 0xBF},
    {0xF1, 0xF3, 4, 0x80, 0xBF},
    {0xF4, 0xF4, 4, 0x80, 0x8F},
}};

bool within(unsigned char byte, unsigned char first, unsigned char last) { return first <= byte && byte <= last; }

}  // namespace

Utf8Piece first_utf8_piece(std::string_view text) {
  const auto at = [text](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  if (at(0) < 0x80) return {1, true};
  for (const LeadRange& lead : kLeadRanges) {
    if (!within(at(0), lead.first, lead.last)) continue;
    if (text.size() < 2 || !within(at(1), lead.second_first, lead.second_last)) return {1, false};
    std::size_t bytes = 2;
    while (bytes < lead.bytes && bytes < text.size() && within(at(bytes), 0x80, 0xBF)) ++bytes;
    return {bytes, bytes == lead.bytes};
  }
  return {1, false};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Piece piece = first_utf8_piece(text);
    if (!piece.valid) return false;
    text.remove_prefix(piece.bytes);
  }
  return true;
}

std::string with_replacements(std::string_view text) {
  std::string replaced;
  while (!text.empty()) {
    const Utf8Piece piece = first_utf8_piece(text);
    replaced += piece.valid ? text.substr(0, piece.bytes) : kReplacementCharacter;
    text.remove_prefix(piece.bytes);
  }
  return replaced;
}

}  // namespace cistern
