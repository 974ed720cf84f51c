#include "command_line.h"

#include <charconv>
#include <stdexcept>
#include <system_error>

namespace cistern::demo {
namespace {

template <class Number>
Number parse_number(const std::string& option, const std::string& text, Number least) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least) {
    throw std::invalid_argument(option + ": '" + text + "' is not a whole number of at least " + std::to_string(least));
  }
  return number;
}

}  // namespace

std::string usage() {
  return "usage: cistern_demo [--steps N] [--text FILE] [--seed N] [--output FOLDER]\n"
         "Trains a character-level transformer whose tensors all come from cistern, on the simulated device.\n"
         "  --steps N        training steps (default 500)\n"
         "  --text FILE      the text to learn (default: the licence texts in /usr/share/common-licenses)\n"
         "  --seed N         of the weights, the batches and the sample (default 1)\n"
         "  --output FOLDER  where demo-snapshot.json and demo.trace go (default: the current folder)\n"
         "CISTERN_DEVICE=simulated:capacity=SIZE sets the size of the device (default 512MiB).\n";
}

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CommandLine line;
  for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
    const std::string& option = *argument;
    if (option == "--help" || option == "-h") {
      line.help = true;
      continue;
    }
    const bool known = option == "--steps" || option == "--seed" || option == "--text" || option == "--output";
    if (!known) throw std::invalid_argument("there is no option '" + option + "'");
    if (++argument == arguments.end()) throw std::invalid_argument(option + ": a value was expected after it");
    const std::string& value = *argument;
    if (option == "--steps") line.steps = parse_number<std::size_t>(option, value, 1);
    if (option == "--seed") line.seed = parse_number<std::uint64_t>(option, value, 0);
    if (option == "--text") line.text = value;
    if (option == "--output") line.output = value;
  }
  return line;
}

}  // namespace cistern::demo
