#include "tests/frameworks/page.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace cistern::frameworks {
namespace {

std::ifstream open(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return file;
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line.substr(1));
  for (std::string cell; std::getline(text, cell, '|');) cells.push_back(trimmed(cell));
  return cells;
}

}  // namespace

std::vector<Row> read_page(const std::string& path) {
  std::ifstream file = open(path);
  std::vector<Row> rows;
  std::string entry;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.starts_with("### ")) entry = line.substr(4);
    if (!line.starts_with("| ") || line.starts_with("| facet ") || line.starts_with("| --- ")) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != 4 || entry.empty())
      throw std::runtime_error(path + ":" + std::to_string(number) + ": expected four columns under an entry");
    rows.push_back({entry, cells[0], cells[2], cells[3], number});
  }
  return rows;
}

std::vector<std::string> read_inventory(const std::string& path) {
  std::ifstream file = open(path);
  std::vector<std::string> keys;
  std::string entry;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    if (line.front() != ' ')
      entry = line;
    else
      keys.push_back(entry + ": " + trimmed(line));
  }
  return keys;
}

std::vector<std::string> names_in(const std::string& cell) {
  static const std::regex quoted("`([^`]+)`");
  std::vector<std::string> names;
  for (std::sregex_iterator found(cell.begin(), cell.end(), quoted), end; found != end; ++found)
    names.push_back((*found)[1]);
  return names;
}

std::set<std::string> tests_under(const std::string& folder) {
  static const std::regex test(R"(\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\))");
  std::set<std::string> tests;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".cpp") continue;
    std::ifstream file = open(entry.path().string());
    std::ostringstream content;
    content << file.rdbuf();
    const std::string text = content.str();
    for (std::sregex_iterator found(text.begin(), text.end(), test), end; found != end; ++found)
      tests.insert((*found)[1].str() + "." + (*found)[2].str());
  }
  return tests;
}

}  // namespace cistern::frameworks
