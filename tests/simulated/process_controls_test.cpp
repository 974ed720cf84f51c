// The process's own device: these tests run with CISTERN_DEVICE=simulated.
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include "runtime/process_driver.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

TEST(ProcessControls, ReachTheDriverThatTheEnvironmentChose) {
  ASSERT_TRUE(simulated::is_active());
  EXPECT_EQ(&simulated::driver().api(), &process_driver());
}

TEST(ProcessControls, LaunchQueuesOnAStream) {
  const Stream stream = Stream::create();
  int ran = 0;
  simulated::launch(stream, {}, {}, 1ms, [&ran] { ran = 1; });
  simulated::launch(Stream::null(), {}, {}, 1ms, [&ran] { ran = 2; });
  EXPECT_FALSE(stream.query());
  EXPECT_EQ(ran, 0);
  stream.synchronize();
  EXPECT_EQ(ran, 1);
  Stream::null().synchronize();
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace cistern
