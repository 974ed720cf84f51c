// After RFC 1952 (gzip) and zlib's manual: pieces of a raw deflate stream that end at a byte
// (Z_SYNC_FLUSH) stand one behind the other, so each can be compressed by itself.

#include "stats/gzip_output.h"

#include "stats/atomic_file.h"

#include <cistern/error.h>

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <new>
#include <ostream>
#include <streambuf>
#include <system_error>
#include <thread>
#include <utility>

namespace cistern {
namespace {

// zlib's interface as its manual states it; unchanged in every version 1.
struct ZStream {
  const unsigned char* next_in = nullptr;
  unsigned avail_in = 0;
  unsigned long total_in = 0;
  unsigned char* next_out = nullptr;
  unsigned avail_out = 0;
  unsigned long total_out = 0;
  const char* msg = nullptr;
  void* state = nullptr;
  void* (*zalloc)(void*, unsigned, unsigned) = nullptr;
  void (*zfree)(void*, void*) = nullptr;
  void* opaque = nullptr;
  int data_type = 0;
  unsigned long adler = 0;
  unsigned long reserved = 0;
};
constexpr int kSyncFlush = 2;
constexpr int kFinish = 4;
constexpr int kStreamEnd = 1;
constexpr int kDeflated = 8;
constexpr int kRawWindowBits = -15;
constexpr int kMemoryLevel = 8;
// The lowest: snapshots repeat so much that more effort gains little for its time.
constexpr int kLevel = 1;

struct Zlib {
  int (*deflate_init)(ZStream*, int level, int method, int window_bits, int memory_level, int strategy,
                      const char* version, int size) = nullptr;
  int (*deflate)(ZStream*, int flush) = nullptr;
  int (*deflate_end)(ZStream*) = nullptr;
  unsigned long (*crc32)(unsigned long crc, const unsigned char* bytes, unsigned count) = nullptr;
  unsigned long (*crc32_combine)(unsigned long first, unsigned long second, long bytes_of_second) = nullptr;
  const char* (*version)() = nullptr;
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw NotSupported(fmt::format("compressed files: libz.so.1 has no {}", name));
}

Zlib load_zlib() {
  void* library = ::dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw NotSupported(fmt::format("compressed files need zlib: {}; a path without .gz needs nothing", ::dlerror()));
  Zlib zlib;
  find(library, "deflateInit2_", zlib.deflate_init);
  find(library, "deflate", zlib.deflate);
  find(library, "deflateEnd", zlib.deflate_end);
  find(library, "crc32", zlib.crc32);
  find(library, "crc32_combine", zlib.crc32_combine);
  find(library, "zlibVersion", zlib.version);
  return zlib;
}

// A failure is not remembered: the library may be there next time.
const Zlib& zlib() {
  static const Zlib loaded = load_zlib();
  return loaded;
}

struct Piece {
  std::string bytes;  // compressed
  unsigned long crc = 0;
  std::size_t size = 0;  // uncompressed
};

Piece compress(const Zlib& zlib, const std::string& text, bool is_last) {
  Piece piece;
  piece.size = text.size();
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  piece.crc = zlib.crc32(0, bytes, static_cast<unsigned>(text.size()));
  ZStream stream;
  if (zlib.deflate_init(&stream, kLevel, kDeflated, kRawWindowBits, kMemoryLevel, 0, zlib.version(), sizeof stream) !=
      0)
    throw std::bad_alloc();
  struct End {
    const Zlib& zlib;
    ZStream& stream;
    ~End() { zlib.deflate_end(&stream); }
  } const end{zlib, stream};
  stream.next_in = bytes;
  stream.avail_in = static_cast<unsigned>(text.size());
  // Until it leaves room: only then all is out.
  for (bool done = false; !done;) {
    const std::size_t before = piece.bytes.size();
    const std::size_t room = std::max<std::size_t>(text.size() / 4, 4096);
    piece.bytes.resize(before + room);
    stream.next_out = reinterpret_cast<unsigned char*>(piece.bytes.data() + before);
    stream.avail_out = static_cast<unsigned>(room);
    const int result = zlib.deflate(&stream, is_last ? kFinish : kSyncFlush);
    piece.bytes.resize(piece.bytes.size() - stream.avail_out);
    done = is_last ? result == kStreamEnd : stream.avail_out != 0;
  }
  return piece;
}

class GzipBuffer : public std::streambuf {
 public:
  explicit GzipBuffer(std::ostream& out)
      : zlib_(zlib()), out_(out), threads_(std::clamp(std::thread::hardware_concurrency(), 1U, 8U)) {
    // The header: deflate, no name, no time, of an unknown system.
    constexpr std::array<char, 10> header{'\x1f', '\x8b', 8, 0, 0, 0, 0, 0, 0, '\xff'};
    out_.write(header.data(), header.size());
    text_.reserve(kPiece);
  }
  void finish() {
    begin_piece(true);
    while (!pieces_.empty()) take_piece();
    put(crc_);
    put(size_);
    out_.flush();
  }

 protected:
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    text_.append(bytes, static_cast<std::size_t>(count));
    if (text_.size() >= kPiece) begin_piece(false);
    return count;  // where it goes keeps its own failures
  }
  int overflow(int character) override {
    if (character == traits_type::eof()) return traits_type::not_eof(character);
    const char byte = traits_type::to_char_type(character);
    return xsputn(&byte, 1) == 1 ? character : traits_type::eof();
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;

  void begin_piece(bool is_last) {
    const auto work = [&zlib = zlib_, text = std::exchange(text_, {}), is_last] {
      return compress(zlib, text, is_last);
    };
    try {
      pieces_.push_back(std::async(threads_ > 1 ? std::launch::async : std::launch::deferred, work));
    } catch (const std::system_error&) {  // no thread to be had: on this one, later
      pieces_.push_back(std::async(std::launch::deferred, work));
    }
    text_.reserve(kPiece + kPiece / 8);
    if (pieces_.size() > threads_) take_piece();
  }
  void take_piece() {
    const Piece piece = pieces_.front().get();
    pieces_.pop_front();
    out_.write(piece.bytes.data(), static_cast<std::streamsize>(piece.bytes.size()));
    crc_ = static_cast<std::uint32_t>(zlib_.crc32_combine(crc_, piece.crc, static_cast<long>(piece.size)));
    size_ += static_cast<std::uint32_t>(piece.size);
  }
  void put(std::uint32_t number) {
    for (int i = 0; i < 4; ++i) out_.put(static_cast<char>(number >> (8 * i)));
  }

  const Zlib& zlib_;
  std::ostream& out_;
  const unsigned threads_;
  std::string text_;
  std::deque<std::future<Piece>> pieces_;  // in order
  std::uint32_t crc_ = 0;
  std::uint32_t size_ = 0;  // modulo 2^32, as the format has it
};

}  // namespace

void write_gzip(std::ostream& out, const std::function<void(std::ostream&)>& write) {
  GzipBuffer buffer(out);
  std::ostream compressed(&buffer);
  compressed.exceptions(std::ios::badbit);  // what the buffer throws is not lost
  write(compressed);
  buffer.finish();
}

void write_plain_or_gzip(const std::string& path, const std::function<void(std::ostream&)>& write) {
  if (path.ends_with(".gz"))
    write_file(path, [&write](std::ostream& out) { write_gzip(out, write); });
  else
    write_file(path, write);
}

}  // namespace cistern
