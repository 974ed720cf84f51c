// Random sets of counters with the summaries of them, a line of JSON each, for a formatter that
// does not know ours: see summary_reference.py. Usage: cistern_summary_sets COUNT SEED

#include "stats/fields.h"
#include "stats/summary.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace {

using Engine = std::mt19937_64;

std::uint64_t below(Engine& engine, std::uint64_t bound) { return engine() % bound; }

// Where the units change, anything near it, and anything else of any magnitude.
std::int64_t any_value(Engine& engine) {
  std::int64_t edge = below(engine, 2) == 0 ? 768 : 750;
  const std::int64_t step = edge == 768 ? 1024 : 1000;
  for (std::uint64_t i = below(engine, edge == 768 ? 5 : 3) + 1; i-- > 0;) edge *= step;
  switch (below(engine, 4)) {
    case 0:
      return edge + static_cast<std::int64_t>(below(engine, 5)) - 2;
    case 1:
      return static_cast<std::int64_t>(below(engine, 2000000));
    default:
      return static_cast<std::int64_t>(engine() >> (13 + below(engine, 50)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: cistern_summary_sets COUNT SEED\n";
    return 2;
  }
  Engine engine(std::strtoull(argv[2], nullptr, 10));
  for (long left = std::strtol(argv[1], nullptr, 10); left > 0; --left) {
    cistern::MemoryStats stats;
    cistern::visit_values(stats, [&](const std::string&, std::int64_t& value) { value = any_value(engine); });
    stats.num_ooms = static_cast<std::int64_t>(below(engine, 1000000000000));
    stats.num_alloc_retries = static_cast<std::int64_t>(below(engine, 100000000));
    const int device = static_cast<int>(below(engine, 65536));
    const bool abbreviated = below(engine, 2) == 0;
    const char* title = below(engine, 2) == 0 ? "PyTorch" : "cistern";
    std::cout << nlohmann::json{{"stats", stats.flat()},
                                {"device", device},
                                {"abbreviated", abbreviated},
                                {"title", title},
                                {"text", cistern::format_summary(stats, device, abbreviated, title)}}
              << '\n';
  }
  return std::cout.flush() ? 0 : 1;
}
