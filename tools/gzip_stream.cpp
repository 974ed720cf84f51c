#include "tools/gzip_stream.h"

#include <zlib.h>

#include <array>
#include <new>
#include <streambuf>

namespace cistern {
namespace {

// zlib's code for a window of 32 KiB with gzip's header and trailer around it.
constexpr int kGzipWindowBits = 15 + 16;
constexpr int kMemoryLevel = 8;  // zlib's default

}  // namespace

class GzipStream::Buffer final : public std::streambuf {
 public:
  explicit Buffer(std::ostream& out) : out_(out) {
    if (deflateInit2(&deflate_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindowBits, kMemoryLevel, Z_DEFAULT_STRATEGY) !=
        Z_OK)
      throw std::bad_alloc();
    reset_area();
  }
  ~Buffer() override { deflateEnd(&deflate_); }

  bool finish() { return compress(Z_FINISH); }

 protected:
  int_type overflow(int_type c) override {
    if (!compress(Z_NO_FLUSH)) return traits_type::eof();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }

 private:
  void reset_area() { setp(plain_.data(), plain_.data() + plain_.size()); }

  // Compresses what is pending and passes on what comes out of it.
  bool compress(int flush) {
    deflate_.next_in = reinterpret_cast<Bytef*>(pbase());
    deflate_.avail_in = static_cast<uInt>(pptr() - pbase());
    do {
      deflate_.next_out = packed_.data();
      deflate_.avail_out = static_cast<uInt>(packed_.size());
      ::deflate(&deflate_, flush);
      out_.write(reinterpret_cast<const char*>(packed_.data()),
                 static_cast<std::streamsize>(packed_.size() - deflate_.avail_out));
    } while (deflate_.avail_out == 0);
    reset_area();
    return out_.good();
  }

  std::ostream& out_;
  z_stream deflate_{};
  std::array<char, 1 << 16> plain_;
  std::array<Bytef, 1 << 16> packed_;
};

GzipStream::GzipStream(std::ostream& target) : std::ostream(nullptr), buffer_(std::make_unique<Buffer>(target)) {
  rdbuf(buffer_.get());
}

GzipStream::~GzipStream() = default;

void GzipStream::finish() {
  if (!buffer_->finish()) setstate(std::ios::badbit);
}

}  // namespace cistern
