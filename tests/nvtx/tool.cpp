#include "tests/nvtx/tool.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>

namespace cistern {

void attach_tool(bool follows_memory) {
  setenv("NVTX_INJECTION64_PATH", CISTERN_FAKE_NVTX_TOOL, 1);
  if (follows_memory) setenv("CISTERN_FAKE_NVTX_MEMORY", "1", 1);
}

std::vector<std::string> told() {
  void* library = dlopen(CISTERN_FAKE_NVTX_TOOL, RTLD_NOW | RTLD_LOCAL);
  std::istringstream lines(reinterpret_cast<const char* (*)()>(dlsym(library, "cistern_fake_nvtx_calls"))());
  dlclose(library);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  return all;
}

}  // namespace cistern
