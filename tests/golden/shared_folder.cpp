#include "tests/golden/shared_folder.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <stdexcept>

namespace cistern {

std::filesystem::path shared_folder() {
  const char* given = std::getenv("CISTERN_SHARED");
  return given != nullptr ? std::filesystem::path(given)
                          : std::filesystem::path(CISTERN_SOURCE_DIR).parent_path() / "shared";
}

std::vector<std::filesystem::path> shared_files(const std::string& folder, const std::string& suffix) {
  std::vector<std::filesystem::path> files;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(shared_folder() / folder, absent))
    if (entry.path().filename().string().ends_with(suffix)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

std::string read_gzip(const std::filesystem::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot open " + path.string());
  std::string text;
  std::array<char, 1 << 16> part;
  int size = 0;
  while ((size = gzread(file, part.data(), static_cast<unsigned>(part.size()))) > 0)
    text.append(part.data(), static_cast<std::size_t>(size));
  if (gzclose(file) != Z_OK || size < 0) throw std::runtime_error("cannot read " + path.string());
  return text;
}

std::string case_name(const std::filesystem::path& path) {
  std::string name = path.filename().string();
  name.erase(name.find(name.find(".trace") != std::string::npos ? ".trace" : ".jsonl"));
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace cistern
