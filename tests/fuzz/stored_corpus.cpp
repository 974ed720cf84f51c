// Runs a fuzz target on stored inputs, without a fuzzer: every file of the folders given. What
// a fuzzer once found stays a test this way, whatever the compiler.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/property.h"

namespace {

void run_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  // The exact size, on the heap, so that a read past the end is seen by AddressSanitizer.
  std::fprintf(stderr, "%s\n", path.c_str());
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t files = 0;
  for (int i = 1; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      run_file(entry.path());
      ++files;
    }
  std::fprintf(stderr, "%zu stored inputs\n", files);
  return files > 0 ? 0 : 1;
}
