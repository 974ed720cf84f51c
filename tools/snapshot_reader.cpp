#include "tools/snapshot_reader.h"

#include <fmt/format.h>

#include "stats/snapshot_schema.h"
#include "tools/document_place.h"
#include "tools/file_stacks.h"
#include "tools/history_reader.h"
#include "tools/segment_reader.h"
#include "tools/settings_reader.h"
#include "tools/text_copies.h"

namespace cistern {

Snapshot snapshot_of(const SnapshotFile& file) {
  const DocumentPlace top(file.document, file.name);
  if (!top.is(Value::Kind::object)) top.fail("an object with segments and device_traces");
  if (top.has("schema_version")) static_cast<void>(top.member("schema_version").integer(1, kSnapshotSchemaVersion));
  Snapshot snapshot;
  const auto read = [&top](std::string_view name, auto& list, auto&& element) {
    if (top.has(name)) top.member(name).for_each([&](const DocumentPlace& place) { list.push_back(element(place)); });
  };
  TextCopies texts(file.bytes);
  read("tags", snapshot.tags, [&texts](const DocumentPlace& place) { return texts.of(place); });
  read("modules", snapshot.modules, [&texts](const DocumentPlace& place) {
    static_cast<void>(place.object());
    return ModuleInfo{texts.of(place.member("path")), texts.of(place.member("build_id"))};
  });
  FileStacks stacks(top, snapshot.modules.size(), texts, snapshot.stacks);
  const std::size_t devices = top.member("device_traces").size();
  snapshot.segments = read_segments(top.member("segments"), devices, stacks, snapshot.tags.size());
  if (top.has("allocator_settings")) snapshot.settings = read_settings(top.member("allocator_settings"));
  read("device_stats", snapshot.device_stats, read_device_stats);
  snapshot.device_traces = read_histories(top.member("device_traces"), stacks, snapshot);
  read("external_annotations", snapshot.external_annotations,
       [&texts](const DocumentPlace& place) { return read_annotation(place, texts); });
  return snapshot;
}

Snapshot read_snapshot(const std::string& path, const std::function<void(double share)>& progress) {
  return snapshot_of(read_snapshot_file(path, progress));
}

Snapshot parse_snapshot(std::string_view text, std::string_view name) {
  return snapshot_of(parse_snapshot_file(text, name));
}

}  // namespace cistern
