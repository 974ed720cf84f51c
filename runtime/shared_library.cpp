#include "runtime/shared_library.h"

#include <cistern/error.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

namespace cistern {

SharedLibrary::SharedLibrary(std::string name, const char* variable, std::initializer_list<const char*> files)
    : name_(std::move(name)) {
  const char* const chosen = std::getenv(variable);
  const bool is_chosen = chosen != nullptr && *chosen != '\0';
  const char* last = "";
  for (const char* file : files) {
    last = is_chosen ? chosen : file;
    handle_ = dlopen(last, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr || is_chosen) break;
  }
  if (handle_ != nullptr) return;
  const char* const reason = dlerror();
  throw NotSupported(fmt::format("{} cannot be loaded: {}; {} names another file", name_,
                                 reason != nullptr ? reason : last, variable));
}

void* SharedLibrary::address_of(const char* symbol) const {
  void* const function = dlsym(handle_, symbol);
  if (function == nullptr) throw NotSupported(fmt::format("{} has no {}", name_, symbol));
  return function;
}

}  // namespace cistern
