#pragma once

// The arrows between the folders, read off the #include lines.

#include <filesystem>
#include <string>
#include <vector>

namespace cistern {

// Something included that the including file's folder may not use.
struct IncludeViolation {
  std::string file;  // from the root, e.g. "runtime/stream.cpp"
  int line = 0;
  std::string included;
  std::string reason;
};

// Reads every C++ file of the folders that have rules, under `root`.
struct IncludeReport {
  std::vector<IncludeViolation> violations;
  int files = 0;
  int lines = 0;  // #include lines
};
[[nodiscard]] IncludeReport check_includes(const std::filesystem::path& root);

}  // namespace cistern
