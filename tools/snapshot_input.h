#pragma once

// A snapshot's file as the argument of a subcommand: read with a bar of progress.

#include <cistern/snapshot.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

#include "tools/command.h"
#include "tools/snapshot_file.h"

namespace cistern {

struct SnapshotInput {
  std::string name;  // for notes
  SnapshotForm form = SnapshotForm::json;
  Snapshot snapshot;
};

// Declares an argument that a snapshot is read from; `path` must outlive the parsing.
void add_snapshot(CLI::App& app, const std::string& argument, std::string& path);

// Reads the snapshot at `path`, number `index` of `count`, as read_snapshot() does, which says what is
// checked, what it throws and what it takes.
[[nodiscard]] SnapshotInput read_snapshot_input(const std::string& path, const CommandStreams& streams,
                                                std::size_t index = 0, std::size_t count = 1);

}  // namespace cistern
