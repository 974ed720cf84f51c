#pragma once

// The bytes of a file one after the other, inflated where they are gzip'd: readers of large files keep
// what they make of them, not the files.
//
// Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cistern {

class ByteSource {
 public:
  // Where bytes come from; at most `room` of them, 0 at the end.
  class Origin {
   public:
    virtual ~Origin() = default;
    virtual std::size_t read(char* to, std::size_t room) = 0;
  };

  // The file at `path`; "-" is standard input. gzip'd data are told by their first bytes.
  // Throws InvalidArgument naming the path if it cannot be read, and as fail() does if it is
  // called .gz and is not gzip'd.
  static ByteSource of_file(const std::string& path);
  // The bytes of `text`, which must outlive the source, called `name` in errors.
  static ByteSource of_text(std::string_view text, std::string_view name);

  ByteSource(ByteSource&&) noexcept;
  ~ByteSource();

  // What the source is called in errors.
  [[nodiscard]] const std::string& name() const { return name_; }
  // Whether all was read. Like what reads on, throws InvalidArgument where a file cannot be read,
  // or as fail() does where gzip data are damaged, end early, or inflate to more than 64 MiB and 200 times their size.
  [[nodiscard]] bool at_end() { return next_ == chunk_.size() && !fill(); }
  // The next byte. Requires: not at_end().
  [[nodiscard]] char peek() const { return chunk_[next_]; }
  void skip() { ++next_; }
  // Appends the next `count` bytes to `to`, as they come: less at the end. False: it was less.
  [[nodiscard]] bool read(std::uint64_t count, std::string& to);
  // Some of the bytes that come next, read on over them; empty at the end.
  [[nodiscard]] std::string_view read_some();

  // How many bytes were read, of inflated data.
  [[nodiscard]] std::uint64_t offset() const { return offset_of_chunk_ + next_; }
  // Lets `progress` know now and then which share of the file, compressed or not, was read; of a file
  // whose size is not known it never hears.
  void watch(std::function<void(double share)> progress) { progress_ = std::move(progress); }
  // The line, from 1, of the last byte that was read.
  [[nodiscard]] std::size_t line() const;
  // Throws InvalidArgument "NAME:LINE: 'text': expected EXPECTED", quoting what is around the last
  // byte read, on its line.
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  ByteSource(std::unique_ptr<Origin> origin, std::string_view name, std::shared_ptr<std::uint64_t> file_offset);
  // Whether they are.
  bool inflate_if_compressed();
  bool fill();
  // What is wrong with gzip data is found where reading stopped: the whole line is quoted.
  [[noreturn]] void fail_at_end(std::string_view expected) const;

  std::string name_;
  std::unique_ptr<Origin> origin_;
  std::shared_ptr<std::uint64_t> file_offset_;  // how much of the file was read, which is `file_size_` long
  std::uint64_t file_size_ = 0;                 // 0: not known
  std::function<void(double)> progress_;
  std::vector<char> chunk_;  // begins with some of what was read before, to be quoted
  std::size_t next_ = 0;
  std::uint64_t offset_of_chunk_ = 0;
  std::size_t lines_before_chunk_ = 0;
};

}  // namespace cistern
