// Handles as bytes.

#include <cistern/error.h>
#include <cistern/ipc.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>

namespace cistern {
namespace {

// The first bytes tell the two kinds apart, and text from either; then the version of the layout.
constexpr std::string_view kMemoryMark = "cstM";
constexpr std::string_view kEventMark = "cstE";
constexpr std::uint32_t kVersion = 1;

class Writer {
 public:
  explicit Writer(std::uint8_t* out) : out_(out) {}
  template <class Number>
  void number(Number value) {
    for (std::size_t i = 0; i < sizeof(Number); ++i) *out_++ = static_cast<std::uint8_t>(value >> (8 * i));
  }
  template <class Range>
  void bytes(const Range& range) {
    out_ = std::copy(range.begin(), range.end(), out_);
  }

 private:
  std::uint8_t* out_;
};

class Reader {
 public:
  explicit Reader(const std::uint8_t* in) : in_(in) {}
  template <class Number>
  void number(Number& value) {
    value = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) value |= static_cast<Number>(Number{*in_++} << (8 * i));
  }
  template <class Range>
  void bytes(Range& range) {
    std::copy(in_, in_ + range.size(), range.begin());
    in_ += range.size();
  }

 private:
  const std::uint8_t* in_;
};

// A reader behind the mark and the version.
Reader open_bytes(const void* data, std::size_t size, std::size_t expected, std::string_view mark, const char* kind) {
  const auto* in = static_cast<const std::uint8_t*>(data);
  if (in == nullptr || size != expected)
    throw InvalidArgument(
        fmt::format("{} from {} bytes at {}: expected the {} bytes of to_bytes", kind, size, data, expected));
  std::uint32_t version = 0;
  Reader reader(in + mark.size());
  reader.number(version);
  if (!std::equal(mark.begin(), mark.end(), in) || version != kVersion)
    throw InvalidArgument(
        fmt::format("{}: these bytes are none; expected the mark \"{}\" and version {}", kind, mark, kVersion));
  return reader;
}

// FNV-1a: a handle's bytes are few, and equal handles have equal bytes.
template <class Bytes>
std::size_t hash_of(const Bytes& bytes) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return static_cast<std::size_t>(hash);
}

}  // namespace

bool MemoryHandle::Sender::operator==(const Sender& other) const noexcept {
  return std::tie(process, slot, descriptor, inode, started, serial) ==
         std::tie(other.process, other.slot, other.descriptor, other.inode, other.started, other.serial);
}

MemoryHandle::MemoryHandle(const Parts& parts) : parts_(parts) {
  if (parts.bytes == 0 || parts.offset > parts.allocation || parts.bytes > parts.allocation - parts.offset)
    throw InvalidArgument(fmt::format("memory handle of {} bytes at offset {}: expected a part of an allocation of {}",
                                      parts.bytes, parts.offset, parts.allocation));
}

MemoryHandle MemoryHandle::from_bytes(const void* data, std::size_t size) {
  Reader reader = open_bytes(data, size, kSize, kMemoryMark, "memory handle");
  Parts parts;
  reader.bytes(parts.driver);
  reader.bytes(parts.device);
  reader.number(parts.allocation);
  reader.number(parts.offset);
  reader.number(parts.bytes);
  reader.number(parts.sender.process);
  reader.number(parts.sender.slot);
  reader.number(parts.sender.descriptor);
  reader.number(parts.sender.inode);
  reader.number(parts.sender.started);
  reader.number(parts.sender.serial);
  return MemoryHandle(parts);
}

MemoryHandle::Bytes MemoryHandle::to_bytes() const noexcept {
  static_assert(kSize == 4 + 4 + sizeof(DriverIpcHandle) + sizeof(DeviceUuid) + 3 * 8 + 3 * 4 + 3 * 8);
  Bytes bytes{};
  Writer writer(bytes.data());
  writer.bytes(kMemoryMark);
  writer.number(kVersion);
  writer.bytes(parts_.driver);
  writer.bytes(parts_.device);
  writer.number(parts_.allocation);
  writer.number(parts_.offset);
  writer.number(parts_.bytes);
  writer.number(parts_.sender.process);
  writer.number(parts_.sender.slot);
  writer.number(parts_.sender.descriptor);
  writer.number(parts_.sender.inode);
  writer.number(parts_.sender.started);
  writer.number(parts_.sender.serial);
  return bytes;
}

bool MemoryHandle::operator==(const MemoryHandle& other) const noexcept { return to_bytes() == other.to_bytes(); }

EventHandle EventHandle::from_bytes(const void* data, std::size_t size) {
  Reader reader = open_bytes(data, size, kSize, kEventMark, "event handle");
  DriverIpcHandle driver{};
  DeviceUuid device{};
  reader.bytes(driver);
  reader.bytes(device);
  return EventHandle(driver, device);
}

EventHandle::Bytes EventHandle::to_bytes() const noexcept {
  Bytes bytes{};
  Writer writer(bytes.data());
  writer.bytes(kEventMark);
  writer.number(kVersion);
  writer.bytes(driver_);
  writer.bytes(device_);
  return bytes;
}

}  // namespace cistern

std::size_t std::hash<cistern::MemoryHandle>::operator()(const cistern::MemoryHandle& handle) const noexcept {
  return cistern::hash_of(handle.to_bytes());
}
std::size_t std::hash<cistern::EventHandle>::operator()(const cistern::EventHandle& handle) const noexcept {
  return cistern::hash_of(handle.to_bytes());
}
