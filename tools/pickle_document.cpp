#include "tools/pickle_document.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <bit>
#include <limits>
#include <optional>
#include <vector>

#include "stats/pickle_opcodes.h"
#include "stats/utf8.h"
#include "tools/input_file.h"
#include "tools/pickle_opcode_names.h"

namespace cistern {
namespace {

using namespace pickle;
using Kind = Value::Kind;

constexpr int kOldestProtocol = 2;
constexpr int kNewestProtocol = 5;
constexpr std::string_view kDataAlone =
    "containers, numbers and texts alone, which is what a snapshot's pickle is made of";

class PickleReader {
 public:
  explicit PickleReader(ByteSource& source) : source_(source) {}

  Document read() {
    if (next_byte() != kProto) fail("a pickle of protocol 2 or newer, which begins with the byte 0x80");
    read_protocol();
    do {
      at_ = source_.offset();
      leave_frame();
      opcode_ = next_byte();
    } while (execute());
    if (!source_.at_end()) fail("the end of the file after the pickle's");
    document_.settle();
    check_extent();
    return std::move(document_);
  }

 private:
  // Names the opcode by which reading stopped.
  [[noreturn]] void fail(std::string_view expected) const {
    const std::string_view name = opcode_name(opcode_);
    const std::string shown =
        name.empty() ? fmt::format("0x{:02x}", static_cast<unsigned char>(opcode_)) : std::string(name);
    fail_input(source_.name(), fmt::format("{} at byte {}", shown, at_), expected);
  }

  // What refers to itself has no end, and what is shared may be far more than the file when written out.
  void check_extent() const {
    const DocumentExtent extent = document_.extent();
    if (extent.levels > Document::kMostLevels)
      fail(fmt::format("at most {} levels of containers inside each other", Document::kMostLevels));
    const std::uint64_t most = most_values_of(source_.offset());
    if (extent.values > most) fail(fmt::format("references that fill out to at most {} values", most));
  }

  char next_byte() {
    if (source_.at_end()) fail("more of the pickle: the file ends");
    const char byte = source_.peek();
    source_.skip();
    check_frame();
    return byte;
  }

  std::uint64_t little_endian(int bytes) {
    std::uint64_t value = 0;
    for (int byte = 0; byte < bytes; ++byte)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(next_byte())) << (8 * byte);
    return value;
  }

  // Takes memory only as the bytes come, whatever the length says.
  std::string_view bytes(std::uint64_t count) {
    buffer_.clear();
    if (!source_.read(count, buffer_))
      fail(fmt::format("{} bytes, which it says follow: the file ends after {}", count, buffer_.size()));
    check_frame();
    return buffer_;
  }

  // Frames are only hints of how much to read at once, but one that is wrong tells of damage.
  void enter_frame() {
    if (frame_end_) fail("no frame inside another");
    const std::uint64_t length = little_endian(8);
    if (length > std::numeric_limits<std::uint64_t>::max() - source_.offset()) fail("a frame that ends in the file");
    frame_end_ = source_.offset() + length;
  }
  void leave_frame() {
    if (frame_end_ && source_.offset() == *frame_end_) frame_end_.reset();
  }
  void check_frame() const {
    if (frame_end_ && source_.offset() > *frame_end_) fail("an opcode that ends in its frame");
  }

  void read_protocol() {
    opcode_ = kProto;
    const auto protocol = static_cast<unsigned char>(next_byte());
    if (protocol < kOldestProtocol || protocol > kNewestProtocol)
      fail(fmt::format("a protocol from {} to {}, not {}", kOldestProtocol, kNewestProtocol, protocol));
  }

  // The values above the last mark.
  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  // Where the values begin that are taken away, down to the mark.
  std::size_t pop_mark() {
    if (marks_.empty()) fail("a MARK before it");
    const std::size_t start = marks_.back();
    marks_.pop_back();
    return start;
  }

  void push(Value value) { stack_.push_back(value); }

  // The last `count` values as one.
  void push_tuple(std::size_t count) {
    if (stack_.size() - floor() < count) fail(fmt::format("{} values before it", count));
    push_container(Kind::tuple, stack_.size() - count);
  }

  void push_container(Kind kind, std::size_t start) {
    const std::span<const Value> content = std::span<const Value>(stack_).subspan(start);
    if (kind == Kind::object) check_names(content);
    const Value made = document_.make_container(kind, content);
    stack_.resize(start);
    push(made);
  }

  void append_from(Kind kind, std::size_t start) {
    if (start == 0 || start <= floor() || !stack_[start - 1].is(kind))
      fail(kind == Kind::list ? "a list before it" : "a dict before it");
    const std::span<const Value> content = std::span<const Value>(stack_).subspan(start);
    if (kind == Kind::object) check_names(content);
    document_.append(stack_[start - 1], content);
    stack_.resize(start);
  }

  void check_names(std::span<const Value> content) const {
    if (content.size() % 2 != 0) fail("a value for each key");
    for (std::size_t at = 0; at < content.size(); at += 2)
      if (!content[at].is(Kind::string)) fail("texts as a dict's keys");
  }

  void push_text(std::uint64_t length) {
    const std::string_view text = bytes(length);
    if (!is_utf8(text)) fail("text in UTF-8");
    push(document_.make_string(text));
  }

  // Two's complement, as long as it says, of a number that may be short.
  void push_long(std::uint64_t length) {
    const std::string_view digits = bytes(length);
    const bool is_negative = !digits.empty() && (digits.back() & '\x80') != 0;
    const char fill = is_negative ? '\xff' : '\0';
    std::uint64_t value = is_negative ? ~std::uint64_t{0} : 0;
    for (std::size_t at = 0; at < digits.size(); ++at) {
      if (at >= 8 && digits[at] != fill) fail("an integer from -2^63 to 2^64 - 1");
      if (at >= 8) continue;
      const int shift = static_cast<int>(8 * at);
      value = (value & ~(std::uint64_t{0xFF} << shift)) |
              (static_cast<std::uint64_t>(static_cast<unsigned char>(digits[at])) << shift);
    }
    if (is_negative && std::bit_cast<std::int64_t>(value) >= 0) fail("an integer from -2^63 to 2^64 - 1");
    push(is_negative ? document_.make_integer(std::bit_cast<std::int64_t>(value)) : document_.make_unsigned(value));
  }

  void push_float() {
    std::uint64_t bits = 0;
    for (int byte = 0; byte < 8; ++byte) bits = (bits << 8) | static_cast<unsigned char>(next_byte());
    push(document_.make_number(std::bit_cast<double>(bits)));
  }

  void put(std::uint64_t slot) {
    if (stack_.size() <= floor()) fail("a value before it");
    // Each takes some bytes to fill, so that there are less of them than bytes.
    if (slot > source_.offset()) fail(fmt::format("a place in the memo below {}, not {}", source_.offset(), slot));
    const auto index = static_cast<std::size_t>(slot);
    if (index >= memo_.size()) {
      memo_.resize(index + 1);
      is_filled_.resize(index + 1, false);
    }
    if (!is_filled_[index]) ++filled_;
    is_filled_[index] = true;
    memo_[index] = stack_.back();
  }

  void get(std::uint64_t slot) {
    const auto index = static_cast<std::size_t>(slot);
    if (index >= memo_.size() || !is_filled_[index])
      fail(fmt::format("a place in the memo that was filled, not {}", slot));
    push(memo_[index]);
  }

  // One opcode. False: it was the last.
  bool execute() {
    switch (opcode_) {
      case kStop:
        stop();
        return false;
      case kFrame:
        enter_frame();
        return true;
      case kMark:
        marks_.push_back(stack_.size());
        return true;
      default:
        if (!execute_scalar() && !execute_container() && !execute_memo()) fail(kDataAlone);
        return true;
    }
  }

  void stop() {
    if (!marks_.empty() || stack_.size() != 1)
      fail(fmt::format("one value at the end, not {} and {} open", stack_.size(), marks_.size()));
    leave_frame();
    if (frame_end_) fail("the end of its frame");
    document_.set_root(stack_.back());
  }

  bool execute_scalar() {
    switch (opcode_) {
      case kNone:
        push({});
        return true;
      case kNewTrue:
      case kNewFalse:
        push(document_.make_boolean(opcode_ == kNewTrue));
        return true;
      case kBinInt:
        push(document_.make_integer(std::bit_cast<std::int32_t>(static_cast<std::uint32_t>(little_endian(4)))));
        return true;
      case kBinInt1:
        push(document_.make_unsigned(little_endian(1)));
        return true;
      case kBinInt2:
        push(document_.make_unsigned(little_endian(2)));
        return true;
      case kLong1:
        push_long(little_endian(1));
        return true;
      case kLong4:
        push_long(little_endian(4));
        return true;
      case kBinFloat:
        push_float();
        return true;
      case kShortBinUnicode:
        push_text(little_endian(1));
        return true;
      case kBinUnicode:
        push_text(little_endian(4));
        return true;
      case kBinUnicode8:
        push_text(little_endian(8));
        return true;
      default:
        return false;
    }
  }

  bool execute_container() {
    switch (opcode_) {
      case kEmptyList:
      case kEmptyDict:
      case kEmptyTuple:
        push(document_.make_container(opcode_ == kEmptyList   ? Kind::list
                                      : opcode_ == kEmptyDict ? Kind::object
                                                              : Kind::tuple,
                                      {}));
        return true;
      case kTuple1:
        push_tuple(1);
        return true;
      case kTuple2:
        push_tuple(2);
        return true;
      case kTuple3:
        push_tuple(3);
        return true;
      case kTuple:
        push_container(Kind::tuple, pop_mark());
        return true;
      case kList:
        push_container(Kind::list, pop_mark());
        return true;
      case kDict:
        push_container(Kind::object, pop_mark());
        return true;
      case kAppend:
        append_last(Kind::list, 1);
        return true;
      case kSetItem:
        append_last(Kind::object, 2);
        return true;
      case kAppends:
        append_from(Kind::list, pop_mark());
        return true;
      case kSetItems:
        append_from(Kind::object, pop_mark());
        return true;
      default:
        return false;
    }
  }

  void append_last(Kind kind, std::size_t count) {
    if (stack_.size() - floor() < count) fail(fmt::format("{} values before it", count));
    append_from(kind, stack_.size() - count);
  }

  bool execute_memo() {
    switch (opcode_) {
      case kMemoize:
        put(filled_);
        return true;
      case kBinPut:
        put(little_endian(1));
        return true;
      case kLongBinPut:
        put(little_endian(4));
        return true;
      case kBinGet:
        get(little_endian(1));
        return true;
      case kLongBinGet:
        get(little_endian(4));
        return true;
      default:
        return false;
    }
  }

  ByteSource& source_;
  Document document_;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;  // how high the stack was
  std::vector<Value> memo_;
  std::vector<bool> is_filled_;  // of the memo's places
  std::size_t filled_ = 0;
  std::string buffer_;
  std::optional<std::uint64_t> frame_end_;
  char opcode_ = kProto;
  std::uint64_t at_ = 0;  // where the opcode stands
};

}  // namespace

bool begins_as_pickle(ByteSource& source) { return !source.at_end() && source.peek() == kProto; }

Document read_pickle_document(ByteSource& source) { return PickleReader(source).read(); }

}  // namespace cistern
