// Keys that were chosen to meet in one bucket do not. Where they did, these tests would take minutes.

#include "tools/seeded_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/document.h"
#include "tools/leaks.h"

namespace cistern {
namespace {

// Texts of 16 bytes that have one hash by MurmurHash64A under the standard library's seed: the second word undoes
// what the first does.
std::vector<std::string> colliding_texts(std::size_t count) {
  constexpr std::uint64_t kFactor = 0xc6a4a7935bd1e995, kSeed = 0xc70f6907;
  std::uint64_t inverse = kFactor;
  for (int step = 0; step < 6; ++step) inverse *= 2 - kFactor * inverse;
  const auto mixed = [](std::uint64_t word) { return word ^ (word >> 47); };
  std::vector<std::string> texts;
  for (std::uint64_t first = 1; texts.size() < count; ++first) {
    const std::uint64_t hash = ((kSeed ^ (16 * kFactor)) ^ (mixed(first * kFactor) * kFactor)) * kFactor;
    const std::uint64_t second = mixed((hash ^ 0x1234567) * inverse) * inverse;
    const std::array<std::uint64_t, 2> words{first, second};
    texts.emplace_back(reinterpret_cast<const char*>(words.data()), sizeof words);
  }
  return texts;
}

TEST(SeededHash, TextsThatTheStandardsHashTakesForOneAreToldApart) {
  const std::vector<std::string> texts = colliding_texts(1000);
  std::set<std::size_t> plain, seeded;
  for (const std::string& text : texts) {
    plain.insert(std::hash<std::string>()(text));
    seeded.insert(SeededHash()(text));
  }
#ifdef __GLIBCXX__
  EXPECT_EQ(plain.size(), 1u) << "the texts collide";
#endif
  EXPECT_EQ(seeded.size(), texts.size());
}

TEST(SeededHash, ADocumentOfCollidingTextsIsBuilt) {
  Document document;
  for (const std::string& text : colliding_texts(200000)) static_cast<void>(document.make_string(text));
  EXPECT_TRUE(document.find_string(colliding_texts(1)[0]));
}

// Multiples of the sizes that the standard library's tables grow through.
constexpr std::uint64_t kStep = std::uint64_t{351061} * 172933;

TEST(SeededHash, NumbersThatAreMultiplesOfATablesSizeSpread) {
  std::unordered_map<std::uint64_t, int, SeededHash> table;
  for (std::uint64_t i = 1; i <= 100000; ++i) table.emplace(i * kStep, 0);
  std::size_t largest = 0;
  for (std::size_t bucket = 0; bucket < table.bucket_count(); ++bucket)
    largest = std::max(largest, table.bucket_size(bucket));
  EXPECT_LT(largest, 30u);
}

TEST(SeededHash, LeaksOfAHistoryOfCollidingAddressesAreFound) {
  Snapshot snapshot;
  snapshot.device_traces.resize(1);
  for (std::uint64_t i = 1; i <= 340000; ++i) {
    TraceEntry entry;
    entry.address = i * kStep;
    entry.size = 512;
    entry.time_us = static_cast<std::int64_t>(i);
    snapshot.device_traces[0].push_back(entry);
  }
  LeakScope scope;
  scope.since_us = 0;
  EXPECT_TRUE(find_leaks(snapshot, scope, "--since").empty()) << "there are no blocks";
}

TEST(SeededHash, DISABLED_PrintsOne) { std::printf("hash %zu\n", SeededHash()("text")); }

// The line that this program prints of its hash when it is started once more.
std::string hash_of_another_process() {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  // Whatever part of the cases this process is to run.
  const std::string command = "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX '" + program +
                              "' --gtest_filter=SeededHash.DISABLED_PrintsOne --gtest_also_run_disabled_tests";
  FILE* output = popen(command.c_str(), "r");
  std::string found;
  for (std::array<char, 256> line{}; fgets(line.data(), line.size(), output) != nullptr;)
    if (std::string_view(line.data()).starts_with("hash ")) found = line.data();
  pclose(output);
  return found;
}

TEST(SeededHash, IsAnotherInEachProcess) {
  const std::string first = hash_of_another_process();
  EXPECT_NE(first, "");
  EXPECT_NE(first, hash_of_another_process());
}

}  // namespace
}  // namespace cistern
