#include "tools/snapshot_input.h"

#include "tools/progress.h"
#include "tools/snapshot_reader.h"

namespace cistern {

void add_snapshot(CLI::App& app, const std::string& argument, std::string& path) {
  app.add_option(argument, path,
                 "a snapshot: cistern's JSON, PyTorch's JSON or a pickle, perhaps gzip'd; - for standard input")
      ->type_name("FILE")
      ->required();
}

SnapshotInput read_snapshot_input(const std::string& path, const CommandStreams& streams, std::size_t index,
                                  std::size_t count) {
  Progress progress(streams.err, streams.show_progress);
  progress.start(path, index, count);
  const SnapshotFile file = read_snapshot_file(path, [&progress](double share) { progress.update("reading", share); });
  return {file.name, file.form, snapshot_of(file)};
}

}  // namespace cistern
