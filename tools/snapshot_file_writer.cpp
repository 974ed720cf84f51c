// Snapshot files in each form.

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <ostream>
#include <vector>

#include "stats/json_writer.h"
#include "stats/pickle_memo.h"
#include "stats/pickle_writer.h"
#include "stats/snapshot_schema.h"
#include "tools/input_file.h"
#include "tools/snapshot_file.h"
#include "tools/snapshot_records.h"

namespace cistern {
namespace {

using Kind = Value::Kind;

// Members of our JSON's top level that PyTorch's forms lack, and that are written anew.
constexpr std::string_view kVersion = "schema_version";
constexpr std::array<std::string_view, 2> kOursAlone{kVersion, "stacks"};

// Lists of frames as each form has them; `write` writes the list in full.

class InlineFrames {
 public:
  static constexpr bool kIsOurs = false;
  explicit InlineFrames(JsonWriter& /*writer*/) {}
  template <class Write>
  void write(std::size_t /*number*/, Write&& write) {
    std::forward<Write>(write)();
  }
};

class MemoizedFrames : public PickleMemo {
 public:
  static constexpr bool kIsOurs = false;
  using PickleMemo::PickleMemo;
};

class FrameIndices {
 public:
  static constexpr bool kIsOurs = true;
  explicit FrameIndices(JsonWriter& /*writer*/) {}
};

template <class Writer, class Frames>
class DocumentWriter {
 public:
  DocumentWriter(const SnapshotFile& file, Writer& writer)
      : document_(file.document), name_(file.name), writer_(writer), frames_(writer) {
    if (const auto frames = document_.find_string("frames")) frames_name_ = *frames;
    if constexpr (Frames::kIsOurs) list_known_stacks();
  }

  void write() {
    writer_.begin_object();
    if constexpr (Frames::kIsOurs) writer_.key(kVersion).number(kSnapshotSchemaVersion);
    for (const Member member : document_.members(document_.root())) {
      const std::string_view name = document_.text(member.name);
      if (std::ranges::find(kOursAlone, name) != kOursAlone.end()) continue;
      writer_.key(name);
      if (name == "segments")
        list(member.value, [this](Value segment) { record(segment, SnapshotRecord::segment); });
      else if (name == "device_traces")
        list(member.value, [this](Value device) {
          list(device, [this](Value entry) { record(entry, SnapshotRecord::trace_entry); });
        });
      else
        value(member.value);
    }
    if constexpr (Frames::kIsOurs) write_stacks();
    writer_.end_object();
    writer_.finish();
  }

 private:
  static constexpr std::int64_t kNoIndex = -1;

  template <class Write>
  void list(Value sequence, Write&& write) {
    if constexpr (std::is_same_v<Writer, PickleWriter>) {
      if (sequence.is(Kind::tuple)) {
        writer_.begin_tuple(document_.elements(sequence).size());
        for (const Value element : document_.elements(sequence)) write(element);
        writer_.end_tuple();
        return;
      }
    }
    writer_.begin_array();
    for (const Value element : document_.elements(sequence)) write(element);
    writer_.end_array();
  }

  // A segment, block or trace entry.
  void record(Value object, SnapshotRecord kind) {
    writer_.begin_object();
    for (const Member member : document_.members(object)) {
      if (member.name == frames_name_) {
        frames(member.value, kind);
        continue;
      }
      const std::string_view name = document_.text(member.name);
      writer_.key(name);
      if (kind == SnapshotRecord::segment && name == "blocks")
        list(member.value, [this](Value block) { record(block, SnapshotRecord::block); });
      else
        value(member.value);
    }
    writer_.end_object();
  }

  // Of the frames that a record has, or of their index.
  void frames(Value sequence, SnapshotRecord kind) {
    if constexpr (Frames::kIsOurs) {
      // Segments and blocks have the key even so, which readers of PyTorch's form expect; an entry
      // without a stack has neither.
      if (kind != SnapshotRecord::trace_entry) {
        writer_.key("frames").begin_array();
        writer_.end_array();
        if (document_.elements(sequence).empty()) return;
      }
      writer_.key("stack").number(index_of(sequence));
    } else {
      writer_.key("frames");
      shared(sequence);
    }
  }

  // What frames are made of, each object once where the form can.
  void shared(Value container) {
    if constexpr (!Frames::kIsOurs)
      frames_.write(document_.container_number(container), [&] {
        if (container.is(Kind::object))
          object(container);
        else
          list(container, [this](Value frame) { frame.is(Kind::object) ? shared(frame) : value(frame); });
      });
  }

  void object(Value value_of) {
    writer_.begin_object();
    for (const Member member : document_.members(value_of)) {
      writer_.key(document_.text(member.name));
      value(member.value);
    }
    writer_.end_object();
  }

  void value(Value value_of) {
    switch (value_of.kind()) {
      case Kind::null:
        writer_.null();
        break;
      case Kind::boolean:
        writer_.boolean(document_.boolean(value_of));
        break;
      case Kind::integer:
        integer(value_of);
        break;
      case Kind::number:
        number(document_.number(value_of));
        break;
      case Kind::string:
        writer_.string(document_.text(value_of));
        break;
      case Kind::list:
      case Kind::tuple:
        list(value_of, [this](Value element) { value(element); });
        break;
      case Kind::object:
        object(value_of);
        break;
    }
  }

  void integer(Value value_of) {
    if (const auto number = document_.as_signed(value_of)) {
      writer_.number(*number);
      return;
    }
    const std::uint64_t number = *document_.as_unsigned(value_of);
    if (Frames::kIsOurs)
      writer_.number(number);
    else if (number == std::numeric_limits<std::uint64_t>::max())
      writer_.number(kNoIndex);  // unlimited, in the words of both
    else
      fail_input(name_, fmt::format("{}", number), "numbers below 2^63, which PyTorch's viewer reads");
  }

  void number(double number) {
    if constexpr (std::is_same_v<Writer, JsonWriter>)
      if (!std::isfinite(number))
        fail_input(name_, fmt::format("{}", number), "finite numbers, which is all that JSON has");
    writer_.number(number);
  }

  // Our stacks, by the numbers of their lists: those that the file lists, then others as they come.
  void list_known_stacks() {
    indices_.assign(document_.containers(), kNoIndex);
    if (const Value* stacks = document_.find(document_.root(), "stacks"))
      for (const Value stack : document_.elements(*stacks)) {
        std::int64_t& index = indices_[document_.container_number(stack)];
        if (index == kNoIndex) index = static_cast<std::int64_t>(stacks_.size());
        stacks_.push_back(stack);
      }
  }

  std::int64_t index_of(Value stack) {
    std::int64_t& index = indices_[document_.container_number(stack)];
    if (index == kNoIndex) {
      index = static_cast<std::int64_t>(stacks_.size());
      stacks_.push_back(stack);
    }
    return index;
  }

  void write_stacks() {
    writer_.key("stacks").begin_array();
    for (const Value stack : stacks_) value(stack);
    writer_.end_array();
  }

  const Document& document_;
  std::string_view name_;
  Writer& writer_;
  Frames frames_;
  Value frames_name_;  // null, which no name is, if there is none
  std::vector<std::int64_t> indices_;
  std::vector<Value> stacks_;
};

}  // namespace

void write_snapshot_file(const SnapshotFile& file, SnapshotForm form, std::ostream& out, int protocol) {
  if (form == SnapshotForm::pickle) {
    PickleWriter writer(out, protocol);
    DocumentWriter<PickleWriter, MemoizedFrames>(file, writer).write();
    return;
  }
  JsonWriter writer(out);
  if (form == SnapshotForm::json)
    DocumentWriter<JsonWriter, FrameIndices>(file, writer).write();
  else
    DocumentWriter<JsonWriter, InlineFrames>(file, writer).write();
}

}  // namespace cistern
