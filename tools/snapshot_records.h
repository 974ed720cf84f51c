#pragma once

// The objects of a snapshot that may name a stack: segments, blocks and the entries of histories.
//
// Thread safety: a function of its arguments alone.

#include "tools/document_place.h"

namespace cistern {

enum class SnapshotRecord { segment, block, trace_entry };

// Calls `visit(SnapshotRecord, DocumentPlace)` for each segment, then its blocks, and each trace entry, in order.
// Throws as DocumentPlace::fail does where the document is no snapshot: an object with the lists segments, of objects
// with lists of blocks, and device_traces, of lists of objects.
template <class Visit>
void for_each_record(const DocumentPlace& top, Visit&& visit) {
  if (!top.is(Value::Kind::object)) top.fail("an object with segments and device_traces");
  top.member("segments").for_each([&](const DocumentPlace& segment) {
    visit(SnapshotRecord::segment, segment.object());
    segment.member("blocks").for_each(
        [&](const DocumentPlace& block) { visit(SnapshotRecord::block, block.object()); });
  });
  top.member("device_traces").for_each([&](const DocumentPlace& device) {
    device.for_each([&](const DocumentPlace& entry) { visit(SnapshotRecord::trace_entry, entry.object()); });
  });
}

}  // namespace cistern
