#include "examples/demo/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace cistern::demo {
namespace {

// The operations of a trace, read by the rules of the format.
struct ParsedTrace {
  std::map<std::uint64_t, std::uint64_t> live;  // id -> bytes
  std::set<int> allocated_on, also_used_on;
  std::size_t allocations = 0, steps = 0;
  std::uint64_t live_bytes = 0, peak_bytes = 0;

  explicit ParsedTrace(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) read(line);
  }

 private:
  void read(const std::string& line) {
    if (line.starts_with("# ")) return;
    std::istringstream fields(line);
    char kind = 0;
    std::uint64_t id = 0, bytes = 0;
    int stream = 0;
    fields >> kind;
    if (kind == 'a') {
      fields >> id >> bytes >> stream;
      EXPECT_TRUE(live.emplace(id, bytes).second) << "live already: " << line;
      allocated_on.insert(stream);
      ++allocations;
      live_bytes += bytes;
      peak_bytes = std::max(peak_bytes, live_bytes);
    } else if (kind == 'r') {
      fields >> id >> stream;
      EXPECT_TRUE(live.contains(id)) << "not live: " << line;
      also_used_on.insert(stream);
    } else if (kind == 'f') {
      fields >> id;
      EXPECT_TRUE(live.contains(id)) << "not live: " << line;
      live_bytes -= live[id];
      live.erase(id);
    } else {
      EXPECT_EQ(line, "i");
      ++steps;
      return;
    }
    EXPECT_TRUE(fields && fields.peek() == std::istringstream::traits_type::eof()) << "malformed: " << line;
  }
};

TEST(AllocationTrace, OfATrainingRunIsWellFormedAndBalanced) {
  std::ostringstream out;
  AllocationTrace trace(out, "first line\nsecond line");
  {
    const Context context(&trace);
    const std::vector<Token> text(100, 1);
    ModelShape shape;
    shape.vocabulary = 2;
    shape.context = 8;
    shape.width = 8;
    shape.heads = 2;
    Trainer trainer(context, text, shape, {});
    for (int i = 0; i < 3; ++i) static_cast<void>(trainer.step());
    EXPECT_FALSE(ParsedTrace(out.str()).live.empty());
  }
  EXPECT_TRUE(out.str().starts_with("# first line\n# second line\na 1 "));
  const ParsedTrace parsed(out.str());
  EXPECT_TRUE(parsed.live.empty());
  EXPECT_EQ(parsed.live_bytes, 0U);
  EXPECT_EQ(parsed.steps, 3U);
  EXPECT_GT(parsed.allocations, 300U);
  EXPECT_EQ(parsed.allocated_on, (std::set<int>{1, 2})) << "compute and copies, none on the default stream";
  EXPECT_EQ(parsed.also_used_on, std::set<int>{1}) << "batches are used by the compute stream too";
}

TEST(AllocationTrace, AnEntryFreesOnceHoweverItMoves) {
  std::ostringstream out;
  AllocationTrace trace(out, "");
  {
    AllocationTrace::Entry entry = trace.allocated(10, Stream());
    AllocationTrace::Entry other = std::move(entry);
    other = trace.allocated(20, Stream());
  }
  EXPECT_EQ(out.str(), "a 1 10 0\na 2 20 0\nf 1\nf 2\n");
}

}  // namespace
}  // namespace cistern::demo
