#include "stats/pickle_writer.h"

#include "stats/pickle_opcodes.h"
#include "stats/utf8.h"

#include <cistern/error.h>

#include <fmt/format.h>

#include <bit>
#include <cassert>
#include <limits>
#include <ostream>

namespace cistern {
namespace {

using namespace pickle;

// Large enough that handing it to the stream costs nothing beside formatting.
constexpr std::size_t kBufferBytes = std::size_t{64} << 10;
// What Python's own pickler puts in a group.
constexpr std::uint32_t kMostInGroup = 1000;

}  // namespace

PickleWriter::PickleWriter(std::ostream& out, int protocol) : out_(out), protocol_(protocol) {
  if (protocol < kOldestPickleProtocol || protocol > kNewestPickleProtocol)
    throw InvalidArgument(fmt::format("pickle protocol {}: expected {} to {}, which PyTorch's viewer reads", protocol,
                                      kOldestPickleProtocol, kNewestPickleProtocol));
  append(kProto);
  append(static_cast<char>(protocol));
}

PickleWriter& PickleWriter::begin_object() {
  before_value();
  append(kEmptyDict);
  levels_.push_back({Scope::object});
  return *this;
}

PickleWriter& PickleWriter::end_object() {
  assert(!levels_.empty() && levels_.back().scope == Scope::object && !after_key_ && "ends what was begun last");
  end_group();
  levels_.pop_back();
  flush_if_full();
  return *this;
}

PickleWriter& PickleWriter::begin_array() {
  before_value();
  append(kEmptyList);
  levels_.push_back({Scope::array});
  return *this;
}

PickleWriter& PickleWriter::end_array() {
  assert(!levels_.empty() && levels_.back().scope == Scope::array && "ends what was begun last");
  end_group();
  levels_.pop_back();
  flush_if_full();
  return *this;
}

PickleWriter& PickleWriter::begin_tuple(std::size_t size) {
  before_value();
  if (size > 3) append(kMark);
  levels_.push_back({.scope = Scope::tuple, .size = size});
  return *this;
}

PickleWriter& PickleWriter::end_tuple() {
  assert(!levels_.empty() && levels_.back().scope == Scope::tuple && "ends what was begun last");
  const std::size_t size = levels_.back().size;
  assert(levels_.back().in_group == size && "a tuple has as many values as were announced");
  constexpr char kShort[] = {kEmptyTuple, kTuple1, kTuple2, kTuple3};
  append(size > 3 ? kTuple : kShort[size]);
  levels_.pop_back();
  flush_if_full();
  return *this;
}

PickleWriter& PickleWriter::key(std::string_view name) {
  assert(!levels_.empty() && levels_.back().scope == Scope::object && !after_key_ && "a key stands in a dict");
  before_item();
  append_text(name);
  after_key_ = true;
  return *this;
}

PickleWriter& PickleWriter::string(std::string_view text) {
  before_value();
  append_text(text);
  return *this;
}

PickleWriter& PickleWriter::boolean(bool value) {
  before_value();
  append(value ? kNewTrue : kNewFalse);
  return *this;
}

PickleWriter& PickleWriter::null() {
  before_value();
  append(kNone);
  return *this;
}

PickleWriter& PickleWriter::signed_number(std::int64_t value) {
  before_value();
  if (value >= 0 && value <= 0xFF) {
    append(kBinInt1);
    append_little_endian(static_cast<std::uint64_t>(value), 1);
  } else if (value >= 0 && value <= 0xFFFF) {
    append(kBinInt2);
    append_little_endian(static_cast<std::uint64_t>(value), 2);
  } else if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
    append(kBinInt);
    append_little_endian(static_cast<std::uint64_t>(value), 4);
  } else {
    // The fewest bytes of two's complement that leave room for the sign.
    const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value < 0 ? ~value : value))) + 1;
    const int bytes = (bits + 7) / 8;
    append(kLong1);
    append(static_cast<char>(bytes));
    append_little_endian(static_cast<std::uint64_t>(value), bytes);
  }
  return *this;
}

PickleWriter& PickleWriter::unsigned_number(std::uint64_t value) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  // What C++ code calls unlimited is -1 to a reader in Python or JavaScript.
  if (value == std::numeric_limits<std::uint64_t>::max()) return signed_number(-1);
  if (value > kMost)
    throw InvalidArgument(fmt::format("{}: expected a number below 2^63, which PyTorch's viewer reads", value));
  return signed_number(static_cast<std::int64_t>(value));
}

PickleWriter& PickleWriter::number(double value) {
  before_value();
  append(kBinFloat);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) buffer_ += static_cast<char>(bits >> shift);
  return *this;
}

PickleWriter& PickleWriter::keep(std::uint32_t slot) {
  assert(slot < slots() && !after_key_ && "keeps what has just ended");
  if (slots_are_filled_once()) {
    assert(slot == filled_ && "slots are filled in order");
    ++filled_;
    append(kMemoize);
  } else {
    append(kBinPut);
    append_little_endian(slot, 1);
  }
  return *this;
}

PickleWriter& PickleWriter::kept(std::uint32_t slot) {
  before_value();
  append(slot <= 0xFF ? kBinGet : kLongBinGet);
  append_little_endian(slot, slot <= 0xFF ? 1 : 4);
  return *this;
}

std::uint32_t PickleWriter::slots() const {
  return slots_are_filled_once() ? std::numeric_limits<std::uint32_t>::max() : 256;
}

void PickleWriter::finish() {
  assert(levels_.empty() && "finished inside a list or a dict");
  append(kStop);
  flush();
  out_.flush();
}

// An item of the list or dict that is open: into the group that is open, or a new one.
void PickleWriter::before_item() {
  Level& level = levels_.back();
  if (level.in_group == kMostInGroup) end_group();
  if (level.in_group++ == 0) append(kMark);
}

void PickleWriter::before_value() {
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (level.scope == Scope::object) {
    assert(after_key_ && "a value in a dict follows its key");
    after_key_ = false;
  } else if (level.scope == Scope::array) {
    before_item();
  } else {
    ++level.in_group;
  }
}

void PickleWriter::end_group() {
  Level& level = levels_.back();
  if (level.in_group == 0) return;
  append(level.scope == Scope::object ? kSetItems : kAppends);
  level.in_group = 0;
  flush_if_full();
}

void PickleWriter::append_text(std::string_view text) {
  const std::string repaired = is_utf8(text) ? std::string() : with_replacements(text);
  if (!repaired.empty()) text = repaired;
  if (protocol_ >= 4 && text.size() <= 0xFF) {
    append(kShortBinUnicode);
    append_little_endian(text.size(), 1);
  } else if (text.size() <= std::numeric_limits<std::uint32_t>::max()) {
    append(kBinUnicode);
    append_little_endian(text.size(), 4);
  } else {
    throw InvalidArgument(
        fmt::format("a text of {} bytes: expected less than 2^32, which PyTorch's viewer reads", text.size()));
  }
  buffer_ += text;
}

void PickleWriter::append_little_endian(std::uint64_t value, int bytes) {
  for (int byte = 0; byte < bytes; ++byte) buffer_ += static_cast<char>(value >> (8 * byte));
}

void PickleWriter::flush_if_full() {
  if (buffer_.size() >= kBufferBytes) flush();
}

void PickleWriter::flush() {
  out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  buffer_.clear();
}

}  // namespace cistern
