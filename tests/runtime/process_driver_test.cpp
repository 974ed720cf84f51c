// How the process's driver is chosen, what a fork does to it, and what happens at exit.
// Each story runs in a process of its own, where nothing is loaded yet.

#include "runtime/process_driver.h"

#include <cistern/device.h>
#include <cistern/error.h>
#include <cistern/event.h>
#include <cistern/memory.h>
#include <cistern/simulated.h>
#include <cistern/stream.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr const char* kNoLibrary = "libcuda-of-nowhere.so.1";

void choose(const char* device, const char* library = kNoLibrary) {
  setenv("CISTERN_DEVICE", device, 1);
  setenv("CISTERN_LIBCUDA", library, 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

// Ends a story: exit status 0 if what was expected holds.
[[noreturn]] void end_story(bool held) { std::exit(held ? 0 : 1); }

// Ends a story with the error's text on standard error.
template <class Expected>
[[noreturn]] void end_with_error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Expected& error) {
    std::fputs(error.what(), stderr);
    std::exit(0);
  }
  std::exit(1);
}

class ProcessDriverStories : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};
using ProcessDriverDeathTest = ProcessDriverStories;

TEST_F(ProcessDriverDeathTest, SimulatedTakesItsSettings) {
  EXPECT_EXIT(
      {
        choose("simulated:devices=3,capacity=2GiB");
        end_story(device_count() == 3 && memory_info(2).total == std::size_t{2} << 30);
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, PlainSimulatedIsOneDevice) {
  EXPECT_EXIT(
      {
        choose("simulated");
        end_story(device_count() == 1 && memory_info().total == std::size_t{80} << 30);
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, SimulatedShowsTheVisibleDevices) {
  EXPECT_EXIT(
      {
        choose("simulated:devices=4");
        setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
        end_story(device_count() == 2);
      },
      ExitedWithCode(0), IsEmpty());
  EXPECT_EXIT(
      {
        choose("simulated");
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
        if (device_count() != 0 || is_available()) end_story(false);
        end_with_error_of<NotSupported>(initialize);
      },
      ExitedWithCode(0), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST_F(ProcessDriverDeathTest, WrongSettingIsNamed) {
  EXPECT_EXIT(
      {
        choose("simulated:capacity=lots");
        end_with_error_of<InvalidArgument>(initialize);
      },
      ExitedWithCode(0), AllOf(HasSubstr("CISTERN_DEVICE"), HasSubstr("capacity=lots")));
}

TEST_F(ProcessDriverDeathTest, UnknownChoiceIsNamedAndIsNoDevice) {
  EXPECT_EXIT(
      {
        choose("cuda:1");
        if (is_available()) end_story(false);
        end_with_error_of<InvalidArgument>(initialize);
      },
      ExitedWithCode(0), AllOf(HasSubstr("CISTERN_DEVICE=cuda:1"), HasSubstr("expected cuda, simulated")));
}

TEST_F(ProcessDriverDeathTest, CudaWithoutADriverSaysWhatToDo) {
  EXPECT_EXIT(
      {
        choose("cuda");
        if (is_available() || device_count() != 0 || is_initialized()) end_story(false);
        end_with_error_of<NotSupported>(initialize);
      },
      ExitedWithCode(0), AllOf(HasSubstr(kNoLibrary), HasSubstr("CISTERN_DEVICE=simulated")));
}

TEST_F(ProcessDriverDeathTest, CudaIsTheDefault) {
  EXPECT_EXIT(
      {
        choose("");
        end_with_error_of<NotSupported>(initialize);
      },
      ExitedWithCode(0), HasSubstr(kNoLibrary));
  EXPECT_EXIT(
      {
        choose("", CISTERN_FAKE_LIBCUDA);
        unsetenv("CISTERN_DEVICE");
        end_story(device_count() == 2 && !simulated::is_active());
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, RefusedLoadIsTriedAgain) {
  EXPECT_EXIT(
      {
        choose("cuda");
        if (is_available()) end_story(false);
        choose("simulated");
        initialize();
        end_story(is_available() && is_initialized());
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, AutoFallsBackAndSaysSoOnce) {
  const auto once = ::testing::Truly([](const std::string& text) {
    const std::string words = "the device is simulated";
    const auto first = text.find(words);
    return first != std::string::npos && text.find(words, first + 1) == std::string::npos;
  });
  EXPECT_EXIT(
      {
        choose("auto");
        initialize();
        std::thread([] { synchronize(); }).join();
        end_story(simulated::is_active());
      },
      ExitedWithCode(0), AllOf(once, StartsWith("cistern: "), HasSubstr(kNoLibrary)));
}

TEST_F(ProcessDriverDeathTest, AutoTakesCudaWhereThereIsADevice) {
  EXPECT_EXIT(
      {
        choose("auto", CISTERN_FAKE_LIBCUDA);
        initialize();
        end_story(!simulated::is_active());
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, AskingForDevicesPrintsNothingAndMakesNoContext) {
  EXPECT_EXIT(
      {
        choose("auto");
        const bool available = is_available() && device_count() == 1;
        end_story(available && !is_initialized() && current_device() == Device(0) &&
                  current_stream() == default_stream());
      },
      ExitedWithCode(0), IsEmpty());
  EXPECT_EXIT(
      {
        choose("simulated");
        static_cast<void>(is_available());
        static_cast<void>(device_count());
        end_story(simulated::driver().calls("cuDevicePrimaryCtxRetain") == 0);
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, ManyThreadsLoadOneDriver) {
  EXPECT_EXIT(
      {
        choose("simulated:devices=2");
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i)
          threads.emplace_back([i] { static_cast<void>(Stream::create({.device = i % 2}).query()); });
        for (std::thread& thread : threads) thread.join();
        end_story(simulated::driver().calls("cuInit") == 1);
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, StreamsAndEventsWorkThroughTheLoadersLibrary) {
  EXPECT_EXIT(
      {
        choose("cuda", CISTERN_FAKE_LIBCUDA);
        const Stream stream = Stream::create({.device = 1, .priority = -1});
        Event start(EventOptions{.enable_timing = true});
        Event end(EventOptions{.enable_timing = true});
        start.record(stream);
        int ran = 0;
        stream.launch_host_func([&] { ran = 1; });
        end.record(stream);
        Stream::from_pool().wait_event(end);
        synchronize(1);
        end_story(ran == 1 && end.query() && start.elapsed_time(end) >= 0 && stream.priority() == -1 &&
                  memory_info(1).total == std::size_t{1} << 30 && can_access_peer(0, 1));
      },
      ExitedWithCode(0), IsEmpty());
}

// Runs `story` in a forked child; whether it returned true.
bool holds_in_child(const std::function<bool()>& story) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that waits for ever is killed, and so fails
    _exit(story() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_refused(const std::function<void()>& action) {
  try {
    action();
  } catch (const NotSupported& error) {
    return std::string(error.what()).find("forked") != std::string::npos;
  }
  return false;
}

TEST_F(ProcessDriverDeathTest, ForkedChildIsRefusedPreciselyAndHarmsNothing) {
  EXPECT_EXIT(
      {
        choose("simulated:devices=2");
        const Stream parents = Stream::create();
        set_stream(parents);
        const SimulatedDriver& driver = simulated::driver();
        const bool child_held = holds_in_child([&] {
          const auto calls = driver.calls();
          {
            Stream copy = parents;
            Event event;
            static_cast<void>(event.query());
            set_device(Device());
            copy = current_stream();
          }
          bool refused = is_refused([] { set_device(1); });
          refused = is_refused([] { static_cast<void>(memory_info()); }) && refused;
          refused = is_refused([] { static_cast<void>(Stream::create()); }) && refused;
          refused = is_refused([&] { parents.synchronize(); }) && refused;
          return refused && device_count() == 2 && !is_initialized() && driver.calls() == calls;
        });
        end_story(child_held && is_initialized() && parents.query());
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, ChildsCopiesOfStreamsAndEventsAreTheParents) {
  EXPECT_EXIT(
      {
        choose("simulated");
        Event event = Stream::create().record_event();
        Stream stream = Stream::create();
        const SimulatedDriver& driver = simulated::driver();
        const bool child_held = holds_in_child([&] {
          const auto calls = driver.calls();
          event = Event();
          stream = Stream();
          return driver.calls() == calls;
        });
        end_story(child_held && event.query() && stream.query());
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, ForkBeforeTheFirstUseIsFine) {
  EXPECT_EXIT(
      {
        choose("simulated");
        const bool child_held = holds_in_child([] {
          initialize();
          return Stream::create().query();
        });
        end_story(child_held && Stream::create().query());
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, ForkAfterARefusedLoadIsFine) {
  EXPECT_EXIT(
      {
        choose("cuda");
        if (is_available()) end_story(false);
        choose("simulated");
        end_story(holds_in_child([] {
          initialize();
          return is_initialized();
        }));
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, ADriverThatForksWhileItLoadsIsLoaded) {
  EXPECT_EXIT(
      {
        choose("cuda", CISTERN_FAKE_LIBCUDA);
        setenv("CISTERN_FAKE_CUDA_FORKS", "1", 1);
        alarm(60);  // a load that waits for itself is killed, and so fails
        initialize();
        const bool child_held = holds_in_child([] { return is_refused([] { set_device(1); }); });
        end_story(child_held && is_initialized() && device_count() == 2);
      },
      ExitedWithCode(0), IsEmpty());
}

// Members of static lifetime that end after main, and after the thread's own state.
struct EndsAtExit {
  Stream stream;
  Event event;
  std::vector<Event> more;
  ~EndsAtExit() {
    static_cast<void>(current_stream());
    const StreamGuard guard(stream);
    static_cast<void>(current_stream());
  }
};

[[noreturn]] void exit_with_statics_alive() {
  static EndsAtExit statics;  // made before the driver is loaded: ends after it is gone
  statics.stream = Stream::create();
  set_stream(statics.stream);
  statics.event.record(statics.stream);
  for (int i = 0; i < 3; ++i) statics.more.push_back(Stream::from_pool().record_event());
  std::exit(0);
}

TEST_F(ProcessDriverDeathTest, StaticDestructorsAreHarmlessAtExit) {
  EXPECT_EXIT(
      {
        choose("simulated");
        exit_with_statics_alive();
      },
      ExitedWithCode(0), IsEmpty());
}

TEST_F(ProcessDriverDeathTest, StaticDestructorsAreHarmlessAfterTheDriverIsGone) {
  EXPECT_EXIT(
      {
        choose("cuda", CISTERN_FAKE_LIBCUDA);
        exit_with_statics_alive();
      },
      ExitedWithCode(0), IsEmpty());
}

}  // namespace
}  // namespace cistern
