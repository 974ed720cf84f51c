#include "tools/progress.h"

#include <gtest/gtest.h>

#include <sstream>

namespace cistern {
namespace {

using std::chrono::milliseconds;

TEST(Progress, SaysNothingWhereNoTerminalIs) {
  std::ostringstream err;
  {
    Progress progress(err, false, milliseconds(0));
    progress.start("a.trace", 0, 2);
    progress.update("first pass", 0.5);
  }
  EXPECT_EQ(err.str(), "");
}

TEST(Progress, ShortWorkShowsNothing) {
  std::ostringstream err;
  {
    Progress progress(err, true, std::chrono::hours(1));
    progress.start("a.trace", 0, 2);
    progress.update("first pass", 0.5);
  }
  EXPECT_EQ(err.str(), "");
}

TEST(Progress, LongWorkShowsWhatIsDoneOnOneLineAndErasesItBeforeAResult) {
  std::ostringstream err;
  Progress progress(err, true, milliseconds(0));
  progress.start("a.trace", 0, 2);
  progress.update("first pass", 0.5);
  EXPECT_NE(err.str().find("[1/2] a.trace [###############...............]  50% first pass"), std::string::npos);
  EXPECT_EQ(err.str().find('\n'), std::string::npos);

  err.str("");
  progress.clear();
  EXPECT_EQ(err.str(), "\r\x1b[2K");
  err.str("");
  progress.clear();
  EXPECT_EQ(err.str(), "");
}

TEST(Progress, AShareBeyondTheWholeIsDrawnAsTheWhole) {
  std::ostringstream err;
  Progress progress(err, true, milliseconds(0));
  progress.start("a.trace", 0, 1);
  progress.update("timing", 1.7);
  EXPECT_NE(err.str().find("a.trace [##############################] 100% timing"), std::string::npos);
}

}  // namespace
}  // namespace cistern
