#include "examples/demo/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

namespace cistern::demo {
namespace {

// A file that goes with the test.
class TextFile {
 public:
  explicit TextFile(const std::string& text)
      : path_(std::filesystem::path(::testing::TempDir()) /
              (std::string("cistern-demo-") + ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TextFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string what_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Text, HoldsOutTheLastTenthOfAFile) {
  const TextFile file(std::string(18000, 'a') + std::string(2000, 'b'));
  const Corpus corpus = read_file(file.path());
  EXPECT_EQ(corpus.training, std::string(18000, 'a'));
  EXPECT_EQ(corpus.held_out, std::string(2000, 'b'));
}

TEST(Text, ReadsRunsOfBlanksAsOne) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "ab \t  c\n";
  const TextFile file(text);
  EXPECT_EQ(read_file(file.path()).training.substr(0, 10), "ab c\nab c\n");
}

TEST(Text, AMissingFileIsNamed) {
  const std::string text = what_of([] { static_cast<void>(read_file("no-such-folder/no-such-file")); });
  EXPECT_NE(text.find("no-such-folder/no-such-file"), std::string::npos) << text;
}

TEST(Text, ATextThatIsTooShortIsNamedWithItsLength) {
  const TextFile file("too short");
  const std::string text = what_of([&] { static_cast<void>(read_file(file.path())); });
  EXPECT_NE(text.find(file.path().string()), std::string::npos) << text;
  EXPECT_NE(text.find("9 characters, expected at least 10000"), std::string::npos) << text;
}

TEST(Text, AFolderWithoutLicencesIsNamedWithTheWayOut) {
  const std::string text = what_of([] { static_cast<void>(read_licences("no-such-folder")); });
  EXPECT_NE(text.find("no-such-folder"), std::string::npos) << text;
  EXPECT_NE(text.find("--text FILE"), std::string::npos) << text;
}

TEST(Vocabulary, DecodesWhatItEncodes) {
  const Vocabulary vocabulary({"hello\n", "world\xff", ""});
  EXPECT_EQ(vocabulary.size(), 9U);
  EXPECT_EQ(vocabulary.decode(vocabulary.encode("hold\n\xff")), "hold\n\xff");
}

TEST(Vocabulary, RefusesACharacterThatItDoesNotHave) {
  const Vocabulary vocabulary({"ab", "b", ""});
  const std::string text = what_of([&] { static_cast<void>(vocabulary.encode("abc")); });
  EXPECT_NE(text.find("code 99"), std::string::npos) << text;
}

TEST(Losses, OfCountingModelsMatchACalculationByHand) {
  // Counts with one added: 0 three times of five, 1 two times.
  EXPECT_NEAR(unigram_loss({0, 0, 1}, {0, 1}, 2), -(std::log(3.0 / 5) + std::log(2.0 / 5)) / 2, 1e-12);
  // After 0: once 0, twice 1, with one added; after 1: never anything but what was added and a 0.
  EXPECT_NEAR(bigram_loss({0, 0, 1, 0, 1}, {0, 1, 1}, 2), -(std::log(3.0 / 5) + std::log(1.0 / 3)) / 2, 1e-12);
}

}  // namespace
}  // namespace cistern::demo
