#include "tools/history_reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "tools/seeded_hash.h"
#include "tools/segment_reader.h"

namespace cistern {
namespace {

constexpr std::array kActions{
    TraceAction::alloc,        TraceAction::free_requested, TraceAction::free_completed, TraceAction::segment_alloc,
    TraceAction::segment_free, TraceAction::segment_map,    TraceAction::segment_unmap,  TraceAction::snapshot,
    TraceAction::oom,          TraceAction::annotate,
};

// A name of a member, looked up once for a million entries.
class MemberName {
 public:
  MemberName(const Document& document, std::string_view text) : text_(text), value_(document.find_string(text)) {}

  // The member, which must be there; fail() otherwise.
  [[nodiscard]] DocumentPlace in(const DocumentPlace& entry) const {
    const Value* found = find(entry);
    return found != nullptr ? entry.inside(text_, *found) : entry.member(text_);
  }
  // `otherwise` where there is none.
  template <class Result, class Read>
  [[nodiscard]] Result in(const DocumentPlace& entry, Result otherwise, Read&& read) const {
    const Value* found = find(entry);
    return found != nullptr ? Result(read(entry.inside(text_, *found))) : otherwise;
  }

 private:
  [[nodiscard]] const Value* find(const DocumentPlace& entry) const {
    return value_ ? entry.document().find(entry.value(), *value_) : nullptr;
  }

  std::string_view text_;
  std::optional<Value> value_;
};

std::int64_t as_integer(const DocumentPlace& place) { return place.integer(); }
std::uint64_t as_address(const DocumentPlace& place) { return place.address(); }

class HistoryReader {
 public:
  HistoryReader(const Document& document, FileStacks& stacks, Snapshot& snapshot)
      : stacks_(stacks), snapshot_(snapshot), names_(document) {}

  std::vector<TraceEntry> read(const DocumentPlace& device) {
    std::vector<TraceEntry> entries;
    entries.reserve(device.size());
    device.for_each([&](const DocumentPlace& entry) {
      const DocumentPlace action = names_.action.in(entry.object());
      const auto* known =
          std::ranges::find_if(kActions, [text = action.text()](TraceAction each) { return text == to_string(each); });
      if (known != kActions.end()) entries.push_back(read(entry, *known));
    });
    return entries;
  }

 private:
  struct Names {
    explicit Names(const Document& document)
        : action(document, "action"),
          addr(document, "addr"),
          device_free(document, "device_free"),
          size(document, "size"),
          stream(document, "stream"),
          time_us(document, "time_us"),
          pool_id(document, "pool_id"),
          tag(document, "tag"),
          user_metadata(document, "user_metadata") {}
    MemberName action, addr, device_free, size, stream, time_us, pool_id, tag, user_metadata;
  };

  TraceEntry read(const DocumentPlace& entry, TraceAction action) {
    TraceEntry read;
    read.action = action;
    if (action == TraceAction::oom)
      read.address = names_.device_free.in(entry).address();
    else if (action == TraceAction::snapshot)
      read.address = names_.addr.in(entry, std::uint64_t{0}, as_address);
    else
      read.address = names_.addr.in(entry).address();
    // What is attached to a block has no size of its own.
    if (action == TraceAction::annotate)
      read.size = names_.size.in(entry, std::int64_t{0}, as_integer);
    else
      read.size = names_.size.in(entry).integer(0);
    read.stream = names_.stream.in(entry).integer();
    read.time_us = names_.time_us.in(entry, std::int64_t{0}, as_integer);
    read.pool_id = names_.pool_id.in(entry, read.pool_id, [](const DocumentPlace& place) { return place.pair(); });
    read.stack = stacks_.index_of(entry);
    const auto most_tag = static_cast<std::int64_t>(snapshot_.tags.size()) - 1;
    read.tag = names_.tag.in(
        entry, kNoTag, [&](const DocumentPlace& place) { return static_cast<TagIndex>(place.integer(-1, most_tag)); });
    read.user_metadata = names_.user_metadata.in(entry, read.user_metadata, [this](const DocumentPlace& place) {
      return place.text().empty() ? -1 : index_of_text(place);
    });
    return read;
  }

  // A document has each text once, which is its number here as well.
  std::int32_t index_of_text(const DocumentPlace& place) {
    const auto [found, is_new] = text_indices_.emplace(place.text(), static_cast<std::int32_t>(snapshot_.texts.size()));
    if (is_new) snapshot_.texts.emplace_back(place.text());
    return found->second;
  }

  FileStacks& stacks_;
  Snapshot& snapshot_;
  Names names_;
  std::unordered_map<std::string_view, std::int32_t, SeededHash> text_indices_;
};

}  // namespace

std::vector<std::vector<TraceEntry>> read_histories(const DocumentPlace& place, FileStacks& stacks,
                                                    Snapshot& snapshot) {
  HistoryReader reader(place.document(), stacks, snapshot);
  std::vector<std::vector<TraceEntry>> histories;
  place.for_each([&](const DocumentPlace& device) { histories.push_back(reader.read(device)); });
  return histories;
}

ExternalAnnotation read_annotation(const DocumentPlace& place, TextCopies& texts) {
  static_cast<void>(place.object());
  const DocumentPlace stage = place.member("stage");
  const std::string_view text = stage.text();
  if (text != "START" && text != "END") stage.fail("\"START\" or \"END\"");
  return {texts.of(place.member("name")), text == "START",
          static_cast<int>(place.member("device").integer(0, std::numeric_limits<int>::max())),
          place.member("time_us").integer()};
}

}  // namespace cistern
