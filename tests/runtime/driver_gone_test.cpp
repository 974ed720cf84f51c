// The driver may be gone before the objects that were made with it: at the end of the process.
#include <cistern/error.h>
#include <cistern/event.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

struct Objects {
  Stream stream = Stream::create();
  Event event;
  Event never_recorded;
};

// In a process of its own: nothing brings the driver back.
[[noreturn]] void end_objects_after_the_driver() {
  setenv("CISTERN_DEVICE", "simulated:capacity=64MiB", 1);
  auto objects = std::make_unique<Objects>();
  simulated::launch(objects->stream, {}, {}, std::chrono::milliseconds(1), [] {});
  objects->event.record(objects->stream);
  simulated::driver().shut_down();
  try {
    objects->stream.synchronize();
    std::_Exit(1);
  } catch (const DriverError& error) {
    if (error.code() != 4) std::_Exit(2);  // CUDA_ERROR_DEINITIALIZED
  }
  objects.reset();
  std::exit(0);  // with what the process keeps
}

TEST(DriverGone, ObjectsEndQuietlyAfterTheirDriver) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(end_objects_after_the_driver(), ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace cistern
