#include "tools/byte_source.h"

#include <cistern/error.h>
#include <fmt/format.h>
#define ZLIB_CONST  // zlib does not write to its input; its interface says so only on request
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include "tools/input_file.h"

namespace cistern {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";
// A chunk of a large file; small ones should not cost that much.
constexpr std::size_t kChunkBytes = std::size_t{128} << 10;
constexpr std::size_t kFirstChunkBytes = std::size_t{2} << 10;
// What of the text read before an error quotes.
constexpr std::size_t kQuotedBefore = 40;
constexpr std::size_t kQuotedAfter = 20;
constexpr std::size_t kKeptBefore = 128;

class FileOrigin final : public ByteSource::Origin {
 public:
  FileOrigin(const std::string& path, std::shared_ptr<std::uint64_t> offset)
      : path_(path), offset_(std::move(offset)), file_(path == "-" ? stdin : std::fopen(path.c_str(), "rb")) {
    if (file_ == nullptr) fail_to_read(path_, errno);
  }
  ~FileOrigin() override {
    if (file_ != stdin) std::fclose(file_);
  }
  FileOrigin(const FileOrigin&) = delete;
  FileOrigin& operator=(const FileOrigin&) = delete;

  std::size_t read(char* to, std::size_t room) override {
    const std::size_t count = std::fread(to, 1, room, file_);
    if (count == 0 && std::ferror(file_) != 0) fail_to_read(path_, errno);
    *offset_ += count;
    return count;
  }

 private:
  std::string path_;
  std::shared_ptr<std::uint64_t> offset_;
  std::FILE* file_;
};

class TextOrigin final : public ByteSource::Origin {
 public:
  TextOrigin(std::string_view text, std::shared_ptr<std::uint64_t> offset) : rest_(text), offset_(std::move(offset)) {}
  std::size_t read(char* to, std::size_t room) override {
    const std::size_t count = rest_.copy(to, room);
    rest_.remove_prefix(count);
    *offset_ += count;
    return count;
  }

 private:
  std::string_view rest_;
  std::shared_ptr<std::uint64_t> offset_;
};

// What gzip data may inflate to: far more than texts do, and far less than data made to fill memory, 1000 times.
constexpr std::uint64_t kAlwaysInflated = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostInflation = 200;

// What is expected of gzip data, where they are not so.
struct DamagedGzip {
  std::string expected;
};

// gzip data may consist of several members, one after the other.
class InflatingOrigin final : public ByteSource::Origin {
 public:
  // `start`: what was read of the data before.
  InflatingOrigin(std::unique_ptr<Origin> compressed, std::string_view start)
      : compressed_(std::move(compressed)), input_(start.begin(), start.end()) {
    // 15: the largest window; 16: a gzip header, and nothing else.
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::bad_alloc();
    set_input(input_.size());
  }
  ~InflatingOrigin() override { inflateEnd(&stream_); }
  InflatingOrigin(const InflatingOrigin&) = delete;
  InflatingOrigin& operator=(const InflatingOrigin&) = delete;

  std::size_t read(char* to, std::size_t room) override {
    // What came out before damage was found is handed over first.
    if (damage_) throw DamagedGzip(*damage_);
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(room);
    try {
      while (stream_.avail_out == room && !ended_) advance();
    } catch (const DamagedGzip& damage) {
      if (stream_.avail_out == room) throw;
      damage_ = std::make_unique<DamagedGzip>(damage);
    }
    const std::size_t count = room - stream_.avail_out;
    produced_ += count;
    if (produced_ > kAlwaysInflated && produced_ / kMostInflation > consumed())
      throw DamagedGzip{fmt::format("gzip data that inflate to at most {} times their size", kMostInflation)};
    return count;
  }

 private:
  void advance() {
    if (stream_.avail_in == 0) refill();
    const bool no_more = stream_.avail_in == 0;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      start_next_member();
    } else if (result == Z_BUF_ERROR || result == Z_OK) {
      if (no_more && stream_.avail_out > 0)
        throw DamagedGzip{fmt::format("the rest of the gzip data, which end at byte {}", consumed())};
    } else if (result == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else {
      throw DamagedGzip{fmt::format("intact gzip data ({} at byte {})",
                                    stream_.msg != nullptr ? stream_.msg : "they are damaged", consumed())};
    }
  }

  void start_next_member() {
    if (stream_.avail_in < kGzipMagic.size()) refill();
    if (stream_.avail_in == 0) {
      ended_ = true;
      return;
    }
    const std::string_view next(reinterpret_cast<const char*>(stream_.next_in), stream_.avail_in);
    if (!next.starts_with(kGzipMagic)) throw DamagedGzip{"nothing after the gzip data's end"};
    inflateReset(&stream_);
  }

  // Reads on behind what is left.
  void refill() {
    const std::size_t left = stream_.avail_in;
    before_input_ += input_.size() - left;
    std::copy(input_.end() - static_cast<std::ptrdiff_t>(left), input_.end(), input_.begin());
    input_.resize(kChunkBytes);
    set_input(left + compressed_->read(input_.data() + left, input_.size() - left));
  }

  void set_input(std::size_t size) {
    input_.resize(size);
    stream_.next_in = reinterpret_cast<const Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(size);
  }

  [[nodiscard]] std::uint64_t consumed() const { return before_input_ + input_.size() - stream_.avail_in; }

  std::unique_ptr<Origin> compressed_;
  std::vector<char> input_;
  std::uint64_t before_input_ = 0;
  std::uint64_t produced_ = 0;
  z_stream stream_{};
  bool ended_ = false;
  std::unique_ptr<DamagedGzip> damage_;
};

}  // namespace

ByteSource ByteSource::of_file(const std::string& path) {
  auto offset = std::make_shared<std::uint64_t>(0);
  ByteSource source(std::make_unique<FileOrigin>(path, offset), path, offset);
  std::error_code unknown;  // of what is no regular file
  const std::uintmax_t size = std::filesystem::file_size(path, unknown);
  if (!unknown) source.file_size_ = size;
  const bool is_compressed = source.inflate_if_compressed();
  if (!is_compressed && path.ends_with(".gz")) {
    const std::string_view start(source.chunk_.data(), source.chunk_.size());
    fail_input(path, 1, start.substr(0, start.find('\n')), "gzip data, as the name says");
  }
  return source;
}

ByteSource ByteSource::of_text(std::string_view text, std::string_view name) {
  auto offset = std::make_shared<std::uint64_t>(0);
  ByteSource source(std::make_unique<TextOrigin>(text, offset), name, offset);
  source.inflate_if_compressed();
  return source;
}

ByteSource::ByteSource(std::unique_ptr<Origin> origin, std::string_view name,
                       std::shared_ptr<std::uint64_t> file_offset)
    : name_(name), origin_(std::move(origin)), file_offset_(std::move(file_offset)) {}

ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource::~ByteSource() = default;

bool ByteSource::inflate_if_compressed() {
  if (at_end()) return false;
  const std::string_view start(chunk_.data(), chunk_.size());
  if (!start.starts_with(kGzipMagic)) return false;
  origin_ = std::make_unique<InflatingOrigin>(std::move(origin_), start);
  chunk_.clear();
  return true;
}

bool ByteSource::read(std::uint64_t count, std::string& to) {
  while (count > 0 && !at_end()) {
    const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(count, chunk_.size() - next_));
    to.append(chunk_.data() + next_, taken);
    next_ += taken;
    count -= taken;
  }
  return count == 0;
}

std::string_view ByteSource::read_some() {
  if (at_end()) return {};
  const std::string_view some(chunk_.data() + next_, chunk_.size() - next_);
  next_ = chunk_.size();
  return some;
}

bool ByteSource::fill() {
  const std::size_t room = std::clamp(2 * chunk_.size(), kFirstChunkBytes, kChunkBytes);
  const std::size_t dropped = chunk_.size() - std::min(chunk_.size(), kKeptBefore);
  const auto first_kept = chunk_.begin() + static_cast<std::ptrdiff_t>(dropped);
  lines_before_chunk_ += static_cast<std::size_t>(std::count(chunk_.begin(), first_kept, '\n'));
  chunk_.erase(chunk_.begin(), first_kept);
  offset_of_chunk_ += dropped;
  next_ = chunk_.size();
  chunk_.resize(next_ + room);
  std::size_t count = 0;
  try {
    count = origin_->read(chunk_.data() + next_, room);
  } catch (const DamagedGzip& damage) {
    chunk_.resize(next_);
    fail_at_end(damage.expected);
  }
  chunk_.resize(next_ + count);
  if (progress_ && file_size_ > 0)
    progress_(std::min(1.0, static_cast<double>(*file_offset_) / static_cast<double>(file_size_)));
  return count > 0;
}

std::size_t ByteSource::line() const {
  // A line feed that was read last ends its line.
  const auto last = chunk_.begin() + static_cast<std::ptrdiff_t>(next_ > 0 ? next_ - 1 : 0);
  return 1 + lines_before_chunk_ + static_cast<std::size_t>(std::count(chunk_.begin(), last, '\n'));
}

void ByteSource::fail(std::string_view expected) const {
  const std::string_view text(chunk_.data(), chunk_.size());
  const std::size_t last = next_ > 0 ? next_ - 1 : 0;
  const std::size_t line_start = last == 0 ? 0 : text.find_last_of('\n', last - 1) + 1;
  const std::size_t start = std::max(line_start, last - std::min(last, kQuotedBefore));
  const std::size_t end = std::min(text.find('\n', last), last + kQuotedAfter);
  fail_input(name_, line(), text.substr(start, end - start), expected);
}

void ByteSource::fail_at_end(std::string_view expected) const {
  const std::string_view text(chunk_.data(), chunk_.size());
  const std::size_t line_start = text.find_last_of('\n') + 1;  // 0 when there is none
  const auto lines = lines_before_chunk_ + static_cast<std::size_t>(std::ranges::count(text, '\n'));
  fail_input(name_, 1 + lines, text.substr(line_start), expected);
}

}  // namespace cistern
