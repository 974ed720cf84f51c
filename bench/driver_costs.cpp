// What does each driver call cost on this device? Prints a Markdown table and writes the
// costs that the cost model uses, as bench/costs.json has them.

#include <cistern/device.h>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <exception>
#include <fstream>
#include <iostream>

#include "bench/driver_timing.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

void print_table(const std::vector<CallTime>& times) {
  std::cout << "| call | of | idle, ns | busy, ns |\n| --- | --- | ---: | ---: |\n";
  for (const CallTime& time : times)
    std::cout << fmt::format("| {} | {} | {:.0f} | {} |\n", time.entry, time.of, time.idle_ns,
                             time.busy_ns ? fmt::format("{:.0f}", *time.busy_ns) : "");
}

nlohmann::json as_costs(const std::vector<CallTime>& times, const std::string& device) {
  nlohmann::json costs;
  costs["source"] = fmt::format("measured on {} by ./dev gpu: medians with the device idle", device);
  for (const CallTime& time : times)
    if (time.is_cost) costs["ns"][time.entry] = std::llround(time.idle_ns);
  return costs;
}

int run(int repetitions, const std::string& costs_path) {
  Contexts& contexts = process_contexts();
  const std::string device = device_properties().name;
  const std::vector<CallTime> times = time_driver_calls(contexts, resolve_device({}), repetitions);
  print_table(times);
  if (costs_path.empty()) return 0;
  std::ofstream file(costs_path);
  file << as_costs(times, device).dump(2) << '\n';
  if (!file.flush()) {
    std::cerr << "cistern_driver_costs: cannot write '" << costs_path << "'\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) try {
  CLI::App app("Times the driver calls that cistern rests on, on the device that CISTERN_DEVICE names.");
  int repetitions = 101;
  std::string costs_path;
  app.add_option("--repetitions", repetitions, "of each call; the median counts")->check(CLI::Range(1, 100000));
  app.add_option("--costs", costs_path, "writes the cost model's figures to this JSON file");
  CLI11_PARSE(app, argc, argv);
  return cistern::run(repetitions, costs_path);
} catch (const std::exception& error) {
  std::cerr << "cistern_driver_costs: " << error.what() << '\n';
  return 2;
}
