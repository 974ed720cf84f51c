#include "tools/input_file.h"

#include <cistern/error.h>
#include <fmt/format.h>
#define ZLIB_CONST  // zlib does not write to its input; its interface says so only on request
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "allocator/quoted_text.h"

namespace cistern {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";

// A path may be in any language, but stays on one line.
std::string printable_name(std::string_view name) {
  std::string out(name);
  std::replace_if(
      out.begin(), out.end(), [](char character) { return (character >= 0 && character < ' ') || character == '\x7f'; },
      '?');
  return out;
}

[[noreturn]] void fail_to_read(const std::string& path, int error) {
  throw InvalidArgument(
      fmt::format("{}: {}: expected a file that can be read", printable_name(path), std::strerror(error)));
}

std::string read_bytes(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) fail_to_read(path, errno);
  std::string bytes;
  std::size_t size = 0;
  do {
    bytes.resize(std::max<std::size_t>(2 * size, 1 << 16));
    size += std::fread(bytes.data() + size, 1, bytes.size() - size, file.get());
  } while (size == bytes.size());
  if (std::ferror(file.get()) != 0) fail_to_read(path, errno);
  bytes.resize(size);
  return bytes;
}

// One run over gzip data, which may consist of several members, one after the other.
class Inflater {
 public:
  Inflater(std::string_view compressed, std::string_view name) : compressed_(compressed), name_(name) {
    // 15: the largest window; 16: a gzip header, and nothing else.
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  std::string run() {
    while (true) {
      const int result = advance();
      if (result == Z_STREAM_END) {
        if (consumed_ == compressed_.size()) break;
        if (!compressed_.substr(consumed_).starts_with(kGzipMagic)) fail("nothing after the gzip data's end");
        inflateReset(&stream_);
      } else if (result == Z_BUF_ERROR || result == Z_OK) {
        if (consumed_ == compressed_.size() && produced_ < out_.size())
          fail(fmt::format("the rest of the gzip data, which end at byte {}", consumed_));
      } else if (result == Z_MEM_ERROR) {
        throw std::bad_alloc();
      } else {
        fail(fmt::format("intact gzip data ({} at byte {})", stream_.msg != nullptr ? stream_.msg : "they are damaged",
                         consumed_));
      }
    }
    out_.resize(produced_);
    return std::move(out_);
  }

 private:
  // One step: from what is left of the input into what is left of the output, enlarged when full.
  int advance() {
    constexpr std::size_t longest = std::size_t{1} << 30;  // zlib counts in 32 bits
    if (produced_ == out_.size()) out_.resize(std::max<std::size_t>(2 * out_.size(), 4 * compressed_.size() + 64));
    const std::size_t input = std::min(longest, compressed_.size() - consumed_);
    const std::size_t room = std::min(longest, out_.size() - produced_);
    stream_.next_in = reinterpret_cast<const Bytef*>(compressed_.data() + consumed_);
    stream_.avail_in = static_cast<uInt>(input);
    stream_.next_out = reinterpret_cast<Bytef*>(out_.data() + produced_);
    stream_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    consumed_ += input - stream_.avail_in;
    produced_ += room - stream_.avail_out;
    return result;
  }

  // Names the line of the inflated text that was reached.
  [[noreturn]] void fail(std::string_view expected) const {
    const std::string_view text = std::string_view(out_).substr(0, produced_);
    const std::size_t line_start = text.find_last_of('\n') + 1;  // 0 when there is none
    fail_input(name_, line_of(text, text.size()), text.substr(line_start), expected);
  }

  std::string_view compressed_;
  std::string_view name_;
  z_stream stream_{};
  std::string out_;
  std::size_t consumed_ = 0;
  std::size_t produced_ = 0;
};

}  // namespace

std::string inflate_gzip(std::string_view compressed, std::string_view name) {
  return Inflater(compressed, name).run();
}

std::string read_input_file(const std::string& path) {
  std::string bytes = read_bytes(path);
  if (bytes.starts_with(kGzipMagic)) return inflate_gzip(bytes, path);
  if (path.ends_with(".gz")) fail_input(path, 1, bytes.substr(0, bytes.find('\n')), "gzip data, as the name says");
  return bytes;
}

void fail_input(std::string_view name, std::size_t line, std::string_view text, std::string_view expected) {
  throw InvalidArgument(fmt::format("{}:{}: {}: expected {}", printable_name(name), line, quoted_text(text), expected));
}

std::size_t line_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  return 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
}

}  // namespace cistern
