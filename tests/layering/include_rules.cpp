#include "tests/layering/include_rules.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <string_view>

namespace cistern {
namespace {

namespace fs = std::filesystem;

// What a folder may include of ours. A folder may always include itself.
struct Layer {
  std::string_view folder;
  std::vector<std::string_view> uses;
};

// include <- runtime; include <- stats; {include, runtime, stats} <- allocator <- {integrations, tools}.
// bench/workloads is named before bench, and integrations under include/ before include: the
// first that matches a path is its layer.
const std::array kLayers = {
    Layer{"include/cistern/integrations", {"include"}},
    Layer{"include", {}},
    Layer{"runtime", {"include"}},
    Layer{"stats", {"include"}},
    Layer{"allocator", {"include", "runtime", "stats"}},
    Layer{"integrations", {"include", "include/cistern/integrations", "runtime", "stats", "allocator"}},
    Layer{"bench/workloads", {}},
    Layer{"tools", {"include", "runtime", "stats", "allocator", "bench/workloads"}},
    Layer{"bench", {"include", "runtime", "stats", "allocator", "tools", "bench/workloads"}},
    Layer{"examples", {"include", "include/cistern/integrations"}},
};

bool is_inside(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

const Layer* layer_of(std::string_view path) {
  const auto* layer = std::find_if(kLayers.begin(), kLayers.end(),
                                   [&](const Layer& candidate) { return is_inside(path, candidate.folder); });
  return layer == kLayers.end() ? nullptr : layer;
}

// A header of the standard library has neither a folder nor an ending, but for those that C shares.
bool is_standard(std::string_view header) {
  return header.find_first_of("/.") == std::string_view::npos || header == "stddef.h" || header == "stdint.h" ||
         header == "stdbool.h";
}

// Why `file`, of `layer`, may not include this; nothing if it may.
std::optional<std::string> objection(const fs::path& root, const fs::path& file, const Layer& layer, bool quoted,
                                     const std::string& included) {
  std::string path = included;
  if (!quoted && included.starts_with("cistern/")) path = "include/" + included;
  if (!quoted && path == included) {
    if (layer.folder == "include" && !is_standard(included)) return "public headers use the standard library only";
    return std::nullopt;
  }
  const Layer* used = layer_of(path);
  if (used == nullptr) {
    // A neighbour by its bare name stays in the folder; anything else is unknown here.
    if (fs::exists(root / file.parent_path() / included)) return std::nullopt;
    return "it is in no folder that has a layer";
  }
  if (quoted && used->folder == "include") return "public headers are included as <cistern/...>";
  if (used == &layer) return std::nullopt;
  if (std::find(layer.uses.begin(), layer.uses.end(), used->folder) != layer.uses.end()) return std::nullopt;
  return std::string(layer.folder) + " must not use " + std::string(used->folder);
}

void check_file(const fs::path& root, const fs::path& file, const Layer& layer, IncludeReport& report) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"].*)re");
  std::ifstream in(root / file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    std::smatch parts;
    if (!std::regex_match(line, parts, kInclude)) continue;
    ++report.lines;
    if (auto reason = objection(root, file, layer, parts[1] == "\"", parts[2])) {
      report.violations.push_back({file.generic_string(), number, parts[2], *reason});
    }
  }
}

}  // namespace

IncludeReport check_includes(const fs::path& root) {
  static const std::set<std::string> kEndings = {".h", ".hpp", ".cpp", ".cc", ".cu", ".def", ".inc"};
  IncludeReport report;
  std::set<fs::path> files;  // in a fixed order, each once
  for (const Layer& layer : kLayers) {
    if (!fs::exists(root / layer.folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / layer.folder)) {
      if (kEndings.contains(entry.path().extension().string())) files.insert(entry.path().lexically_relative(root));
    }
  }
  for (const fs::path& file : files) {
    ++report.files;
    check_file(root, file, *layer_of(file.generic_string()), report);
  }
  return report;
}

}  // namespace cistern
