// cistern workload: writes a generated trace, or lists the generators.

#include <cistern/error.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <ostream>

#include "bench/workloads/workload.h"
#include "stats/atomic_file.h"
#include "tools/command.h"
#include "tools/gzip_stream.h"
#include "tools/usage.h"

namespace cistern {
namespace {

void list_workloads(std::ostream& out) {
  std::size_t width = 0;
  for (const Workload& workload : workloads()) width = std::max(width, std::strlen(workload.name));
  for (const Workload& workload : workloads())
    out << fmt::format("{:<{}}  {}\n", workload.name, width, workload.description);
}

const Workload& require_workload(const std::string& name) {
  const Workload* workload = find_workload(name);
  if (workload != nullptr) return *workload;
  std::string names;
  for (const Workload& known : workloads()) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  throw InvalidArgument(fmt::format("cistern workload: unknown workload '{}'; expected one of {}", name, names));
}

void generate(const Workload& workload, std::uint64_t seed, std::ostream& out) {
  TextTraceWriter writer(out);
  workload.generate(seed, writer);
  writer.flush();
}

void generate_compressed(const Workload& workload, std::uint64_t seed, std::ostream& out) {
  GzipStream compressed(out);
  generate(workload, seed, compressed);
  compressed.finish();
  if (!compressed) out.setstate(std::ios::badbit);
}

}  // namespace

int workload_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Writes a generated allocation trace; without NAME, lists the generators.", "cistern workload");
  std::string name;
  std::string path;
  std::optional<std::uint64_t> seed;
  app.add_option("NAME", name, "the workload");
  const CLI::Option* seed_option = add_whole_number(
      app, "--seed", seed, fmt::format("chooses sizes and arrivals; by default {}", kDefaultWorkloadSeed));
  const CLI::Option* path_option =
      app.add_option("-o", path, "write to this file, gzip'd if it ends with .gz; by default, or with -, to standard output")
          ->type_name("FILE");
  app.footer("The same name and seed give the same trace on every machine.");
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;

  if (name.empty()) {
    if (*seed_option || *path_option)
      throw InvalidArgument("cistern workload: --seed and -o need a NAME; expected one of those it lists without them");
    list_workloads(streams.out);
    return kExitSuccess;
  }
  const Workload& workload = require_workload(name);
  if (path.empty() || path == "-") {
    generate(workload, seed.value_or(kDefaultWorkloadSeed), streams.out);
    return kExitSuccess;
  }
  const auto write = path.ends_with(".gz") ? generate_compressed : generate;
  write_file(path, [&](std::ostream& out) { write(workload, seed.value_or(kDefaultWorkloadSeed), out); });
  return kExitSuccess;
}

}  // namespace cistern
