#pragma once

// The folder of recorded data beside the checkout: CISTERN_SHARED, or ../shared.

#include <filesystem>
#include <string>
#include <vector>

namespace cistern {

[[nodiscard]] std::filesystem::path shared_folder();
// The files of a folder of it whose names end with `suffix`, sorted; none if it is absent.
[[nodiscard]] std::vector<std::filesystem::path> shared_files(const std::string& folder, const std::string& suffix);
// The text of a gzip'd file. Throws std::runtime_error naming it.
[[nodiscard]] std::string read_gzip(const std::filesystem::path& path);
// A file's name as a test case's: letters, digits and underscores.
[[nodiscard]] std::string case_name(const std::filesystem::path& path);

}  // namespace cistern
