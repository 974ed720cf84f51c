#include "tools/snapshot_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tools/document_place.h"
#include "tools/json_document.h"
#include "tools/pickle_document.h"
#include "tools/snapshot_records.h"

namespace cistern {
namespace {

using Kind = Value::Kind;

void check_stack(const DocumentPlace& frames) {
  frames.for_each([](const DocumentPlace& frame) { static_cast<void>(frame.object()); });
}

// Puts an equal container that others may share in place of each.
class EqualSharer {
 public:
  explicit EqualSharer(Document& document) : document_(document), shared_(document.containers()) {}

  Value share(Value value) {
    if (!value.is_container()) return value;
    const std::size_t number = document_.container_number(value);
    if (number >= shared_.size()) return value;  // made here
    if (shared_[number] != Value()) return shared_[number];
    const std::span<const Value> elements = document_.elements(value);
    std::vector<Value> content(elements.begin(), elements.end());
    for (Value& element : content) element = share(element);
    return shared_[number] = document_.make_shared_container(value.kind(), content);
  }

 private:
  Document& document_;
  std::vector<Value> shared_;  // by the container's number
};

// The list that a record's index names, in its place; for none, what PyTorch has there.
class StacksInPlace {
 public:
  StacksInPlace(Document& document, std::string_view name)
      : document_(document),
        name_(name),
        stack_(document.make_string("stack")),
        frames_(document.make_string("frames")),
        no_frames_(document.make_shared_container(Kind::list, {})) {}

  void put() {
    const DocumentPlace top(document_, name_);
    const DocumentPlace table = top.member("stacks");
    table.for_each([](const DocumentPlace& stack) { check_stack(stack); });
    const std::span<const Value> elements = document_.elements(table.value());
    stacks_.assign(elements.begin(), elements.end());
    for_each_record(top, [this](SnapshotRecord kind, const DocumentPlace& record) { put(kind, record); });
  }

 private:
  void put(SnapshotRecord kind, const DocumentPlace& record) {
    const Value* found = document_.find(record.value(), stack_);
    if (found == nullptr) return;
    const std::int64_t index =
        record.inside("stack", *found).integer(-1, static_cast<std::int64_t>(stacks_.size()) - 1);
    if (const Value* frames = document_.find(record.value(), frames_)) {
      if (!frames->is_sequence() || !document_.elements(*frames).empty())
        record.inside("frames", *frames).fail("no frames beside an index in stack");
      document_.remove_member(record.value(), frames_);
    }
    if (index >= 0)
      document_.replace_member(record.value(), stack_, {frames_, stacks_[static_cast<std::size_t>(index)]});
    else if (kind == SnapshotRecord::trace_entry)
      document_.remove_member(record.value(), stack_);
    else
      document_.replace_member(record.value(), stack_, {frames_, no_frames_});
  }

  Document& document_;
  std::string_view name_;
  Value stack_, frames_, no_frames_;
  std::vector<Value> stacks_;
};

// That frames are lists of objects, where there are any, and that no index is left; in pickles, equal lists
// need not be one yet.
void check_frames(SnapshotFile& file, bool share_equal) {
  const Value name = file.document.make_string("frames");
  const Value stack = file.document.make_string("stack");
  // By the container's number: many records name one list. What the sharer makes was checked before.
  std::vector<bool> to_check(file.document.containers(), true);
  EqualSharer sharer(file.document);
  for_each_record(DocumentPlace(file.document, file.name), [&](SnapshotRecord, const DocumentPlace& record) {
    if (const Value* index = file.document.find(record.value(), stack))
      record.inside("stack", *index).fail("a list stacks at the top level, of which it is an index");
    const Value* frames = file.document.find(record.value(), name);
    if (frames == nullptr) return;
    const DocumentPlace place = record.inside("frames", *frames);
    const std::size_t number = file.document.container_number(place.list().value());
    if (number < to_check.size() && to_check[number]) {
      check_stack(place);
      to_check[number] = false;
    }
    if (share_equal) file.document.replace_member(record.value(), name, {name, sharer.share(*frames)});
  });
}

// torch.cuda.memory_snapshot() gives the list of segments alone: makes the object of it that has an empty history for
// each of their devices.
void complete_bare_list(Document& document) {
  constexpr std::int64_t kMostDevices = 1024;  // those of a larger number have none, and are refused
  std::int64_t devices = 0;
  for (const Value segment : document.elements(document.root())) {
    const Value* device = segment.is(Kind::object) ? document.find(segment, "device") : nullptr;
    if (device == nullptr || !device->is(Kind::integer)) continue;
    const std::int64_t number = document.as_signed(*device).value_or(kMostDevices);
    if (number < kMostDevices) devices = std::max(devices, number + 1);
  }
  const std::vector<Value> histories(static_cast<std::size_t>(devices), document.make_container(Kind::list, {}));
  const std::vector<Value> members{document.make_string("segments"), document.root(),
                                   document.make_string("device_traces"),
                                   document.make_container(Kind::list, histories)};
  document.set_root(document.make_container(Kind::object, members));
}

// That each record is an object of its own, as in all that PyTorch writes and its viewer takes: a reference to
// another would be read as one more, of two bytes.
void check_none_is_shared(const SnapshotFile& file) {
  std::vector<bool> is_met(file.document.containers());
  const auto meet = [&](const DocumentPlace& place) {
    if (!place.value().is_container()) return;
    auto met = is_met[file.document.container_number(place.value())];
    if (met) place.fail("an object of its own, which no reference shares");
    met = true;
  };
  const DocumentPlace top(file.document, file.name);
  for_each_record(top, [&](SnapshotRecord, const DocumentPlace& record) { meet(record); });
  for (const std::string_view name : {"external_annotations", "device_stats", "modules", "stacks"})
    if (top.has(name) && top.member(name).value().is_sequence()) top.member(name).for_each(meet);
}

// Stacks in place of indices are many times more than the file, if it was made to be.
void check_extent(const SnapshotFile& file) {
  const std::uint64_t most = most_values_of(file.bytes);
  if (file.document.extent().values > most)
    fail_input(file.name, "stacks", fmt::format("stacks that fill out to at most {} values", most));
}

}  // namespace

const char* to_string(SnapshotForm form) noexcept {
  switch (form) {
    case SnapshotForm::json:
      return "json";
    case SnapshotForm::torch_json:
      return "pytorch-json";
    case SnapshotForm::pickle:
      break;
  }
  return "pickle";
}

SnapshotFile read_snapshot_file(ByteSource& source) {
  SnapshotFile file;
  file.name = source.name();
  const bool is_pickle = begins_as_pickle(source);
  file.document = is_pickle ? read_pickle_document(source) : read_json_document(source);
  if (file.document.root().is_sequence()) complete_bare_list(file.document);
  const Value root = file.document.root();
  const bool is_ours = root.is(Kind::object) && file.document.find(root, "stacks") != nullptr;
  file.form = is_pickle ? SnapshotForm::pickle : is_ours ? SnapshotForm::json : SnapshotForm::torch_json;
  file.bytes = source.offset();
  check_none_is_shared(file);
  if (is_ours) StacksInPlace(file.document, file.name).put();
  check_frames(file, is_pickle && !is_ours);
  check_extent(file);
  return file;
}

SnapshotFile read_snapshot_file(const std::string& path, const std::function<void(double share)>& progress) {
  ByteSource source = ByteSource::of_file(path);
  source.watch(progress);
  return read_snapshot_file(source);
}

SnapshotFile parse_snapshot_file(std::string_view text, std::string_view name) {
  ByteSource source = ByteSource::of_text(text, name);
  return read_snapshot_file(source);
}

}  // namespace cistern
