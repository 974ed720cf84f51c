#include "bench/workloads/workload.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>

namespace cistern {
namespace {

// Keeps the books of a trace while it is generated, and objects to what a reader would refuse.
class Bookkeeper final : public TraceSink {
 public:
  void comment(std::string_view text) override {
    EXPECT_EQ(operations_, 0u) << "a header line after the first operation: " << text;
    EXPECT_EQ(text.find('\n'), std::string_view::npos);
    header_.append(text).append("\n");
  }
  std::uint64_t allocate(std::uint64_t bytes, unsigned stream) override {
    count();
    live_[++last_id_] = bytes;
    live_bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    streams_.insert(stream);
    EXPECT_GT(bytes, 0u);
    return last_id_;
  }
  void record(std::uint64_t id, unsigned stream) override {
    count();
    EXPECT_TRUE(live_.contains(id)) << "recorded after its free: " << id;
    streams_.insert(stream);
    ++records_;
  }
  void free(std::uint64_t id) noexcept override {
    count();
    const auto block = live_.find(id);
    if (block == live_.end()) {
      ADD_FAILURE() << "freed twice: " << id;
      return;
    }
    live_bytes_ -= block->second;
    live_.erase(block);
  }
  void step() override {
    count();
    ++steps_;
  }

  std::string header_;
  std::unordered_map<std::uint64_t, std::uint64_t> live_;
  std::set<unsigned> streams_;
  std::uint64_t operations_ = 0, steps_ = 0, records_ = 0, live_bytes_ = 0, peak_bytes_ = 0;

 private:
  void count() { ++operations_; }

  std::uint64_t last_id_ = 0;
};

std::string text_of(const Workload& workload, std::uint64_t seed) {
  std::ostringstream out;
  TextTraceWriter writer(out);
  workload.generate(seed, writer);
  writer.flush();
  return out.str();
}

// FNV-1a, 64 bits.
std::uint64_t checksum(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return hash;
}

class EveryWorkload : public ::testing::TestWithParam<Workload> {};

TEST_P(EveryWorkload, IsWellFormedAndFreesAllThatItAllocated) {
  Bookkeeper books;
  GetParam().generate(kDefaultWorkloadSeed, books);
  EXPECT_TRUE(books.live_.empty());
  EXPECT_EQ(books.live_bytes_, 0u);
  EXPECT_GE(books.operations_, 50'000u);
  EXPECT_LE(books.operations_, 300'000u);
  EXPECT_GE(books.steps_, 10u);
  EXPECT_LE(books.peak_bytes_, std::uint64_t{24} << 30) << "too large for a common card";
}

TEST_P(EveryWorkload, NamesItselfAndItsSeedInTheHeader) {
  Bookkeeper books;
  GetParam().generate(12345, books);
  EXPECT_NE(books.header_.find(GetParam().name), std::string::npos) << books.header_;
  EXPECT_NE(books.header_.find("seed 12345"), std::string::npos) << books.header_;
}

TEST_P(EveryWorkload, IsTheSameForTheSameSeedAndAnotherForAnother) {
  const std::string first = text_of(GetParam(), 1);
  EXPECT_EQ(first, text_of(GetParam(), 1));
  const std::string other = text_of(GetParam(), 2);
  // Beyond the header, which names the seed.
  EXPECT_NE(first.substr(first.find("\na ")), other.substr(other.find("\na ")));
}

std::string test_name(const ::testing::TestParamInfo<Workload>& info) {
  std::string name;
  for (const char* letter = info.param.name; *letter != '\0'; ++letter) name += *letter == '-' ? '_' : *letter;
  return name;
}
INSTANTIATE_TEST_SUITE_P(Workloads, EveryWorkload, ::testing::ValuesIn(workloads().begin(), workloads().end()),
                         test_name);

// Published figures name a workload and a seed: they must mean the same trace on every machine.
// A change of a generator changes its sum here, and the figures measured with it are void.
TEST(Workloads, AreTheTracesThatTheMeasuredFiguresNamed) {
  const std::map<std::string, std::uint64_t> sums = {
      {"gpt2-train", 0xff15340065aa768bu},        {"gpt2-train-checkpointed", 0xfabbfdc08c79e91cu},
      {"llama3-8b-serve", 0x8a38721b54066a85u},   {"detection-train", 0x59dd70cbee9d56beu},
      {"dataframe-streams", 0x7fa60178067bf9b6u}, {"small-operations", 0xfd66f5e2228577bbu},
      {"sawtooth", 0x08fc62efeebe2a33u},
  };
  ASSERT_EQ(sums.size(), workloads().size());
  for (const Workload& workload : workloads()) {
    EXPECT_EQ(checksum(text_of(workload, kDefaultWorkloadSeed)), sums.at(workload.name)) << workload.name;
  }
}

TEST(Workloads, OnlyTheDataframeHandsBlocksFromStreamToStream) {
  for (const Workload& workload : workloads()) {
    Bookkeeper books;
    workload.generate(kDefaultWorkloadSeed, books);
    const bool many_streams = std::string_view(workload.name) == "dataframe-streams";
    EXPECT_EQ(books.streams_.size(), many_streams ? 4u : 1u) << workload.name;
    EXPECT_EQ(books.records_ > 0, many_streams) << workload.name;
  }
}

TEST(Workloads, AreFoundByName) {
  for (const Workload& workload : workloads()) EXPECT_EQ(find_workload(workload.name), &workload);
  EXPECT_EQ(find_workload("gpt3"), nullptr);
  EXPECT_EQ(find_workload(""), nullptr);
}

TEST(TextTraceWriter, WritesTheLinesOfTheTraceFormat) {
  std::ostringstream out;
  TextTraceWriter writer(out);
  writer.comment("a header");
  const std::uint64_t id = writer.allocate(18446744073709551615u, 3);
  writer.record(id, 2);
  writer.free(id);
  writer.step();
  EXPECT_NE(writer.allocate(1, 0), id);
  writer.flush();
  EXPECT_EQ(out.str(), "# a header\na 1 18446744073709551615 3\nr 1 2\nf 1\ni\na 2 1 0\n");
}

TEST(TextTraceWriter, WritesWhatItHoldsBackAtItsEnd) {
  std::ostringstream out;
  TextTraceWriter(out).step();
  EXPECT_EQ(out.str(), "i\n");
}

}  // namespace
}  // namespace cistern
