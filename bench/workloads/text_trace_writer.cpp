#include <charconv>
#include <ostream>
#include <string>

#include "bench/workloads/workload.h"

namespace cistern {
namespace {

constexpr std::size_t kFlushAt = std::size_t{64} << 10;
// More than an operation's line can take: its letter, three fields of 20 digits, spaces, end.
constexpr std::size_t kLongestLine = 80;

}  // namespace

TextTraceWriter::TextTraceWriter(std::ostream& out) : out_(out) { text_.reserve(kFlushAt + kLongestLine); }

TextTraceWriter::~TextTraceWriter() { flush(); }

void TextTraceWriter::flush() noexcept {
  out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
  text_.clear();
}

void TextTraceWriter::comment(std::string_view text) {
  flush();
  out_ << "# " << text << '\n';
}

std::uint64_t TextTraceWriter::allocate(std::uint64_t bytes, unsigned stream) {
  const std::uint64_t id = next_id_++;
  write_line('a', {id, bytes, stream});
  return id;
}

void TextTraceWriter::record(std::uint64_t id, unsigned stream) { write_line('r', {id, stream}); }

void TextTraceWriter::free(std::uint64_t id) noexcept { write_line('f', {id}); }

void TextTraceWriter::step() { write_line('i', {}); }

// What is held back never outgrows what was reserved: no line needs memory.
void TextTraceWriter::write_line(char kind, std::initializer_list<std::uint64_t> fields) noexcept {
  if (text_.size() >= kFlushAt) flush();
  text_.push_back(kind);
  for (const std::uint64_t field : fields) {
    char digits[20];
    const auto written = std::to_chars(digits, digits + sizeof(digits), field);
    text_.push_back(' ');
    text_.append(digits, written.ptr);
  }
  text_.push_back('\n');
}

}  // namespace cistern
