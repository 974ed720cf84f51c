#pragma once

// A CUDA library beside the driver, loaded when it is first needed and never unloaded: such libraries
// have threads and state that outlive any use of them.

#include <initializer_list>
#include <string>

namespace cistern {

class SharedLibrary {
 public:
  // `name`: what messages call it, e.g. "cuRAND". Loads the file that the environment variable names
  // or, if it is unset or empty, the first of `files` that can be. Throws NotSupported, with the loader's
  // words about the last.
  SharedLibrary(std::string name, const char* variable, std::initializer_list<const char*> files);

  // Throws NotSupported if the library lacks the symbol.
  template <class Function>
  void find(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(address_of(symbol));
  }

 private:
  [[nodiscard]] void* address_of(const char* symbol) const;
  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace cistern
