#include "allocator/out_of_memory_dump.h"

#include <cstdio>

namespace cistern {
namespace {

void write_to(std::FILE* file, std::string_view text, std::string_view summary) {
  std::string all;
  all.reserve(text.size() + summary.size() + 2);
  all.append("cistern: ").append(text).append("\n").append(summary);
  std::fwrite(all.data(), 1, all.size(), file);
  std::fflush(file);
}

}  // namespace

void dump_out_of_memory(const std::string& where, std::string_view text, std::string_view summary) noexcept try {
  if (where == "off") return;
  if (where == "stderr" || where == "stdout") {
    write_to(where == "stderr" ? stderr : stdout, text, summary);
    return;
  }
  std::FILE* file = std::fopen(where.c_str(), "a");
  if (file == nullptr) {
    std::fprintf(stderr, "cistern: oom_dump: cannot append to '%s'\n", where.c_str());
    write_to(stderr, text, summary);
    return;
  }
  write_to(file, text, summary);
  std::fclose(file);
} catch (...) {  // without host memory there is no text to write
}

}  // namespace cistern
