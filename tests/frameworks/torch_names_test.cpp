// torch.cuda: names that are deprecated, or that others are used for here.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/byte_units.h"
#include "tests/frameworks/framework_device.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // it is what is tested

namespace cistern {
namespace {

using ::testing::HasSubstr;

class TorchCudaNames : public FrameworkDevice {
 protected:
  void TearDown() override {
    empty_cache();
    FrameworkDevice::TearDown();
  }
};

TEST_F(TorchCudaNames, CachedMeansReserved) {
  void* memory = allocate(5 * kMega, default_stream(1));
  EXPECT_EQ(memory_cached(), 0U);
  EXPECT_EQ(memory_cached(1), memory_reserved(1));
  EXPECT_EQ(memory_cached(1), 20 * kMega);
  deallocate(memory);
  empty_cache();
  EXPECT_EQ(memory_cached(1), 0U);
  EXPECT_EQ(max_memory_cached(1), 20 * kMega);
  EXPECT_EQ(max_memory_cached(), 0U);
  set_device(1);
  EXPECT_EQ(max_memory_cached(), 20 * kMega);
  memory = allocate(5 * kMega);
  EXPECT_EQ(memory_cached(), 20 * kMega);
  deallocate(memory);
}

TEST_F(TorchCudaNames, EitherResetIsOfAllPeaks) {
  for (void (*reset)(Device) : {&reset_max_memory_allocated, &reset_max_memory_cached}) {
    deallocate(allocate(30 * kMega));
    empty_cache();
    EXPECT_EQ(max_memory_allocated(), 30 * kMega);
    EXPECT_GT(max_memory_reserved(), 0U);
    reset({});
    EXPECT_EQ(max_memory_allocated(), 0U);
    EXPECT_EQ(max_memory_reserved(), 0U);
  }
}

TEST_F(TorchCudaNames, ResetsAreOfTheDeviceThatIsNamed) {
  for (void (*reset)(Device) : {&reset_max_memory_allocated, &reset_max_memory_cached}) {
    deallocate(allocate(30 * kMega, default_stream(0)));
    deallocate(allocate(30 * kMega, default_stream(1)));
    reset(1);
    EXPECT_EQ(max_memory_allocated(0), 30 * kMega);
    EXPECT_EQ(max_memory_allocated(1), 0U);
  }
}

TEST_F(TorchCudaNames, ResetsAreOfTheCurrentDeviceIfNoneIsNamed) {
  set_device(1);
  for (void (*reset)(Device) : {&reset_max_memory_allocated, &reset_max_memory_cached}) {
    for (const int device : {0, 1}) deallocate(allocate(30 * kMega, default_stream(device)));
    reset({});
    EXPECT_EQ(max_memory_allocated(0), 30 * kMega);
    EXPECT_EQ(max_memory_allocated(1), 0U);
  }
}

TEST_F(TorchCudaNames, CachingAllocatorAllocIsOfADeviceAndAStream) {
  void* plain = caching_allocator_alloc(kMega);
  EXPECT_EQ(memory_allocated(0), kMega);
  void* there = caching_allocator_alloc(kMega, 1);
  EXPECT_EQ(memory_allocated(1), kMega);
  const Stream stream = Stream::create({.device = 1});
  void* on_stream = caching_allocator_alloc(kMega, 1, stream);
  EXPECT_EQ(memory_allocated(1), 2 * kMega);
  EXPECT_THROW(static_cast<void>(caching_allocator_alloc(kMega, 0, stream)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(caching_allocator_alloc(kMega, device_count())), InvalidArgument);
  void* by_default = caching_allocator_alloc(kMega, 1, Stream());  // the default stream is any device's
  EXPECT_EQ(memory_allocated(1), 3 * kMega);
  EXPECT_EQ(caching_allocator_alloc(0), nullptr);
  for (void* memory : {plain, there, on_stream, by_default}) caching_allocator_delete(memory);
  caching_allocator_delete(nullptr);
  EXPECT_EQ(memory_allocated(0), 0U);
  EXPECT_EQ(memory_allocated(1), 0U);
}

TEST_F(TorchCudaNames, CachingAllocatorAllocTakesTheCurrentStreamOfItsDevice) {
  const Stream stream = Stream::create({.device = 1});
  set_stream(stream);
  set_device(0);
  void* memory = caching_allocator_alloc(kMega, 1);
  bool is_found = false;
  for (const StreamStats& each : stream_stats(1)) is_found = is_found || each.stream_id == stream.id();
  EXPECT_TRUE(is_found);
  caching_allocator_delete(memory);
}

// What the compiler says of calls, each in a line of its own: by line, from 1 on.
std::map<std::size_t, std::string> words_of_the_compiler(const std::vector<std::string>& calls) {
  std::string source = "#include <cistern/c_api.h>\n#include <cistern/cistern.h>\nvoid use() {\n#line 1 \"calls\"\n";
  for (const std::string& call : calls) source += "static_cast<void>(" + call + ");\n";
  const std::string command = "echo '" + source +
                              "}' | LC_ALL=C " CISTERN_CXX_COMPILER
                              " -std=c++17 -fsyntax-only -Wdeprecated "
                              "-Wdeprecated-declarations -I" CISTERN_SOURCE_DIR "/include -x c++ - 2>&1";
  std::FILE* output = popen(command.c_str(), "r");
  std::map<std::size_t, std::string> words;
  std::array<char, 512> buffer;
  while (std::fgets(buffer.data(), buffer.size(), output) != nullptr) {
    std::size_t line = 0;
    words[std::sscanf(buffer.data(), "calls:%zu:", &line) == 1 ? line : 0] += buffer.data();
  }
  pclose(output);
  return words;
}

TEST_F(TorchCudaNames, DeprecatedOnesAreMarkedAndNameWhatToUse) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"memory_cached", "memory_reserved"},
      {"max_memory_cached", "max_memory_reserved"},
      {"reset_max_memory_allocated", "reset_peak_memory_stats"},
      {"reset_max_memory_cached", "reset_peak_memory_stats"}};
  std::vector<std::string> deprecated;
  std::vector<std::string> replacements;
  for (const auto& [name, replacement] : names) {
    deprecated.push_back("cistern::" + name + "()");
    deprecated.push_back("cistern_" + name + (name[0] == 'r' ? "(0)" : "(0, nullptr)"));
    replacements.push_back("cistern::" + replacement + "()");
  }
  const auto words = words_of_the_compiler(deprecated);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& [name, replacement] = names[i];
    ASSERT_TRUE(words.contains(2 * i + 1) && words.contains(2 * i + 2)) << name;
    EXPECT_THAT(words.at(2 * i + 1), HasSubstr("use " + replacement)) << name;
    EXPECT_THAT(words.at(2 * i + 2), HasSubstr("use cistern_" + replacement)) << name;
  }
  EXPECT_TRUE(words_of_the_compiler(replacements).empty());
}

}  // namespace
}  // namespace cistern
