#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace cistern {
namespace {

namespace fs = std::filesystem;

// That they compile is what building this program has shown: it depends on the objects.
TEST(PublicHeaders, AllWereCompiledAloneInBothStandards) {
  std::set<std::string> compiled;
  std::istringstream list(CISTERN_HEADERS_COMPILED);
  for (std::string header; std::getline(list, header, ',');) compiled.insert(header);

  std::set<std::string> present;
  const fs::path include = fs::path(CISTERN_SOURCE_DIR) / "include";
  for (const fs::path& folder : {include / "cistern", include / "cistern" / "c"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".h") present.insert(entry.path().lexically_relative(include).generic_string());
    }
  }
  EXPECT_EQ(compiled, present);
  EXPECT_GE(present.size(), 10u);
}

TEST(PublicHeaders, ThoseThatAdaptOthersWereCompiledToo) {
  std::set<std::string> compiled;
  std::istringstream list(CISTERN_ADAPTERS_COMPILED);
  for (std::string header; std::getline(list, header, ',');) compiled.insert(header);
  std::set<std::string> present;
  const fs::path include = fs::path(CISTERN_SOURCE_DIR) / "include";
  for (const auto& entry : fs::directory_iterator(include / "cistern/integrations"))
    present.insert(entry.path().lexically_relative(include).generic_string());
  if (compiled.count("cistern/integrations/cuda_mr.h") == 0)
    GTEST_SKIP() << "CCCL is not among the CUDA Toolkit's headers: cuda_mr.h and thrust.h were not compiled";
  EXPECT_EQ(compiled, present);
}

TEST(PublicHeaders, WereCompiledByNvcc) {
#ifndef CISTERN_HEADERS_BY_NVCC
  GTEST_SKIP() << "nvcc was not found";
#endif
}

TEST(PublicHeaders, AreAllBroughtByTheOneThatBringsAll) {
  const fs::path folder = fs::path(CISTERN_SOURCE_DIR) / "include" / "cistern";
  std::stringstream all;
  all << std::ifstream(folder / "cistern.h").rdbuf();
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    // Itself; what marks symbols, which the others bring; and the C interface.
    if (name == "cistern.h" || name == "export.h" || name == "c_api.h" || !entry.is_regular_file()) continue;
    EXPECT_NE(all.str().find("#include <cistern/" + name + ">"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace cistern
