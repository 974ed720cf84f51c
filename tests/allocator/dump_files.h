#pragma once

// The files that a dump leaves: the text, and the snapshots beside it.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace cistern {

inline std::string read_whole(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The snapshot that an error's text names; "" if it names none.
inline std::string snapshot_named_in(std::string_view text) {
  constexpr std::string_view before = " A snapshot is in ";
  const std::size_t begin = text.find(before);
  const std::size_t end = text.find(".json", begin);
  if (begin == std::string_view::npos || end == std::string_view::npos) return "";
  return std::string(text.substr(begin + before.size(), end + 5 - begin - before.size()));
}

// The text as the dump has it, which is written before the snapshot.
inline std::string without_snapshot(std::string_view text) {
  return std::string(text.substr(0, text.find(" A snapshot is in ")));
}

inline void remove_dump(const std::string& path) {
  std::filesystem::remove(path);
  for (int i = 0; i < 16; ++i)
    std::filesystem::remove(path + "." + std::to_string(::getpid()) + "." + std::to_string(i) + ".json");
}

}  // namespace cistern
