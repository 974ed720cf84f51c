#pragma once

// Snapshot files of every form, whole: our JSON, which lists stacks once and names them by index, PyTorch's
// JSON, which writes out the frames in each place, and PyTorch's pickles, where places share lists of
// frames; each plain or gzip'd, told apart by what they contain.
//
// Thread safety: values, and functions of their arguments alone.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "tools/byte_source.h"
#include "tools/document.h"

namespace cistern {

enum class SnapshotForm : std::uint8_t { json, torch_json, pickle };
// As an argument of the command: "json", "pytorch-json", "pickle".
[[nodiscard]] const char* to_string(SnapshotForm form) noexcept;

// A snapshot with all that its file says, known or not. Whatever the form was, segments, blocks and trace
// entries have `frames` as PyTorch's do, and equal stacks are one shared list; the list of stacks
// of our JSON is kept beside them, as the top level's member `stacks`.
struct SnapshotFile {
  std::string name;  // for errors
  SnapshotForm form = SnapshotForm::json;
  std::uint64_t bytes = 0;  // that were read, inflated
  Document document;
};

// Reads the file at `path`, "-" for standard input. A bare list is that of the segments, as
// torch.cuda.memory_snapshot() gives it, and becomes a snapshot without a history. Checked is what every form needs: an
// object with the lists segments and device_traces, of objects with lists of blocks, and of lists of objects; `frames`
// that are lists, and indices that name a stack; and that of segments, blocks, entries and other objects of lists,
// but not frames, no two are one by reference. read_snapshot() checks the rest.
// Memory: mostly less than twice the size of our JSON and 4 times that of a pickle, inflated; the stacks
// that PyTorch's JSON repeats count once.
// Throws InvalidArgument, one line, for a file that cannot be read or is anything else.
// `progress`, if any, hears now and then which share of the file was read.
[[nodiscard]] SnapshotFile read_snapshot_file(const std::string& path,
                                              const std::function<void(double share)>& progress = {});
// The same of a text in memory, called `name` in errors.
[[nodiscard]] SnapshotFile parse_snapshot_file(std::string_view text, std::string_view name);
[[nodiscard]] SnapshotFile read_snapshot_file(ByteSource& source);

// Writes `file` in a form; all that it holds is in each, and read back from it. Our JSON says the version of its
// schema, whatever the file said. Tuples are lists in JSON.
// PyTorch's forms have no `stacks` and no version, whose name its viewer takes for its own; 2^64 - 1,
// which it cannot read, becomes -1. A pickle holds each stack once where `protocol` is 4; 2 and 3
// repeat stacks that were not used lately. Memory: a buffer, and 4 bytes a list or object in `file`.
// Throws InvalidArgument, something perhaps written, for what the form cannot hold: in PyTorch's
// numbers from 2^63 to 2^64 - 2, in JSON infinities and NaN.
void write_snapshot_file(const SnapshotFile& file, SnapshotForm form, std::ostream& out, int protocol = 4);

}  // namespace cistern
