// Names of code in modules whose files say which build made them, or do not, or are others by now.

#include "stats/symbolizer.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "stats/file_bytes.h"

namespace cistern {
namespace {

// A module that was loaded from a copy of its file.
class LoadedModule {
 public:
  explicit LoadedModule(const char* original) {
    std::filesystem::copy_file(original, path, std::filesystem::copy_options::overwrite_existing);
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
  }
  ~LoadedModule() {
    dlclose(handle_);
    std::remove(path.c_str());
  }
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  // In place of its file comes that one: what runs stays what it is.
  void replace_file(const char* other) const {
    const std::string beside = path + ".new";
    std::filesystem::copy_file(other, beside);
    std::filesystem::rename(beside, path);
  }
  [[nodiscard]] std::uintptr_t inside() const {
    return reinterpret_cast<std::uintptr_t>(dlsym(handle_, "call_me")) + 1;
  }
  // The name of the code in its function.
  [[nodiscard]] std::string name() const {
    const std::uintptr_t inside = this->inside();
    const Symbols symbols = symbolize({&inside, 1});
    return symbols.frames.at(inside).name;
  }

  const std::string path = ::testing::TempDir() + "cistern-" +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                           std::to_string(::getpid()) + ".so";

 private:
  void* handle_ = nullptr;
};

// Where a name is not known.
std::string place_in(const LoadedModule& module) { return module.path.substr(module.path.rfind('/') + 1) + "+0x"; }

TEST(Symbolizer, NamesTheCodeOfAModuleThatSaysItsBuild) {
  const LoadedModule module(CISTERN_MODULE_WITH_BUILD_ID);
  EXPECT_EQ(module.name(), "call_me");
}

TEST(Symbolizer, AnotherBuildsFileNamesNothing) {
  const LoadedModule module(CISTERN_MODULE_WITH_BUILD_ID);
  module.replace_file(CISTERN_OTHER_MODULE_WITH_BUILD_ID);
  EXPECT_EQ(module.name().substr(0, place_in(module).size()), place_in(module));
}

TEST(Symbolizer, NamesTheCodeOfAModuleThatDoesNotIfItsFileIsStillTheOneThatIsMapped) {
  const LoadedModule module(CISTERN_MODULE_WITHOUT_BUILD_ID);
  if (mapped_file_at(module.inside()) != OpenFile(module.path).identity())
    GTEST_SKIP() << "what is mapped has other numbers than its file here, as in some layers of file systems";
  EXPECT_EQ(module.name(), "call_me");
}

TEST(Symbolizer, FilesThatDoNotSayTheirBuildAreNotTakenForOneAnother) {
  const LoadedModule module(CISTERN_MODULE_WITHOUT_BUILD_ID);
  module.replace_file(CISTERN_OTHER_MODULE_WITHOUT_BUILD_ID);
  EXPECT_EQ(module.name().substr(0, place_in(module).size()), place_in(module));
}

TEST(Symbolizer, AFileThatIsGoneNamesNothing) {
  const LoadedModule module(CISTERN_MODULE_WITHOUT_BUILD_ID);
  std::remove(module.path.c_str());
  EXPECT_EQ(module.name().substr(0, place_in(module).size()), place_in(module));
}

}  // namespace
}  // namespace cistern
