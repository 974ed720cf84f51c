// What is settled when a process starts, each in a process of its own: CUDA_VISIBLE_DEVICES.

#include <cistern/cistern.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace cistern {
namespace {

// The UUIDs that a process sees which starts with that environment; a child process each.
std::string uuids(const char* visible) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    setenv("CISTERN_DEVICE", "simulated:devices=3,capacity=1GiB", 1);
    visible == nullptr ? unsetenv("CUDA_VISIBLE_DEVICES") : setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    std::string seen;
    for (int device = 0; device < device_count(); ++device) seen += " " + device_properties(device).uuid_text();
    const bool written = write(ends[1], seen.data(), seen.size()) == static_cast<ssize_t>(seen.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string seen;
  char buffer[512];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) seen.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return seen;
}

TEST(FrameworksProcess, CudaVisibleDevicesChoosesAndOrdersTheDevices) {
  const std::string all = uuids(nullptr);
  const std::size_t each = all.size() / 3;
  const std::string first = all.substr(0, each), second = all.substr(each, each), third = all.substr(2 * each);
  EXPECT_EQ(uuids("2,0"), third + first);
  EXPECT_EQ(uuids("1"), second);
  EXPECT_EQ(uuids(""), "");
  EXPECT_EQ(uuids("1,9,0"), second);  // an entry that names no device ends the list
  EXPECT_EQ(uuids(third.substr(1).c_str()), third);
}

}  // namespace
}  // namespace cistern
