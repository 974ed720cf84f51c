// Memory runs out: what the error knows, who is told, and that the program goes on.
//   CISTERN_DEVICE=simulated:capacity=1GiB cistern_out_of_memory     (or cuda)

#include <cistern/cistern.h>

#include <cstdio>
#include <exception>
#include <vector>

int main() try {
  cistern::set_options("oom_dump:off");  // else the summary goes to standard error
  int told = 0;
  const cistern::ObserverId observer =
      cistern::add_out_of_memory_observer([&](const cistern::OutOfMemoryReport&) { ++told; });

  const std::size_t step = cistern::memory_info().total / 8;
  std::vector<cistern::DeviceBuffer<unsigned char>> held;
  bool ran_out = false;
  while (!ran_out) {
    try {
      const cistern::TagScope tag("activations");
      held.emplace_back(step);
    } catch (const cistern::OutOfMemoryError& error) {
      const cistern::OutOfMemoryReport& report = error.report();
      std::printf("%s\n\ncause: %s; %zu of %zu bytes are live here, %zu are another's; advice: %s\n", error.what(),
                  cistern::to_string(report.cause), report.allocated_bytes, report.device_total_bytes,
                  report.outside_bytes, report.advice.c_str());
      ran_out = true;
    }
  }
  std::printf("\n%s\n", cistern::memory_report().c_str());

  held.pop_back();
  held.emplace_back(step);  // what was freed is there for the next request
  held.clear();
  cistern::remove_observer(observer);
  return told == 1 && cistern::memory_allocated() == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
