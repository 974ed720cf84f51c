// What a report reads like.

#include <cistern/race_report.h>

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace cistern {
namespace {

std::string hexadecimal(std::uint64_t value) { return fmt::format("{:#x}", value); }
std::string hexadecimal(const void* address) { return hexadecimal(reinterpret_cast<std::uint64_t>(address)); }

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? name.get() : symbol;
}

// "function+0x12 (module+0x3456)": the second part is what addr2line asks for.
std::string describe_frame(const void* frame) {
  Dl_info info{};
  if (::dladdr(frame, &info) == 0) return hexadecimal(frame);
  const auto offset_from = [frame](const void* base) {
    return "+" + hexadecimal(reinterpret_cast<std::uint64_t>(frame) - reinterpret_cast<std::uint64_t>(base));
  };
  std::string text;
  if (info.dli_sname != nullptr) text = demangled(info.dli_sname) + offset_from(info.dli_saddr) + " ";
  const std::string_view path = info.dli_fname == nullptr ? "" : info.dli_fname;
  const std::size_t slash = path.rfind('/');
  text += "(" + std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
  return text + offset_from(info.dli_fbase) + ")";
}

std::string indented(const CallStack& stack) {
  std::string text;
  for (std::size_t i = 0; i < stack.frames.size(); ++i) {
    text += "      #" + std::to_string(i) + " " + describe_frame(stack.frames[i]) + "\n";
  }
  return text;
}

std::string describe(const RaceSide& side, bool touches_memory) {
  std::string text = side.operation;
  if (!side.name.empty()) text += " \"" + side.name + "\"";
  if (touches_memory) text += side.writes ? " (writes)" : " (reads)";
  if (side.device < 0) return text + " by the host";
  text += side.stream == nullptr ? " on the default stream" : " on stream " + hexadecimal(side.stream);
  return text + " (number " + std::to_string(side.stream_id) + ") of device " + std::to_string(side.device);
}

std::string places_of(const RaceSide& side) {
  std::string text = ", from\n" + indented(side.stack);
  if (!side.captured.frames.empty()) text += "    captured from\n" + indented(side.captured);
  return text;
}

std::string describe(const RaceReport& report, const RaceBlock& block) {
  const auto offset = reinterpret_cast<std::int64_t>(report.address) - reinterpret_cast<std::int64_t>(block.address);
  return ", at offset " + std::to_string(offset) + " of the " + (block.is_live ? "" : "freed ") + block.origin +
         " of " + std::to_string(block.bytes) + " bytes at " + hexadecimal(block.address);
}

}  // namespace

const char* to_string(RaceKind kind) noexcept {
  switch (kind) {
    case RaceKind::data_race:
      return "data race: two operations in no order, of which one writes";
    case RaceKind::reuse:
      return "reuse: memory is used anew before earlier work on it is done";
    case RaceKind::free_in_use:
      return "free in use: work on the memory may still run, and nobody was told of it";
    case RaceKind::dead_memory:
      return "dead memory: it is freed, unmapped or not handed out";
    case RaceKind::out_of_bounds:
      return "out of bounds: the access runs past the end of its memory";
    case RaceKind::foreign_memory:
      return "foreign memory: it is another device's or another driver's";
    case RaceKind::host_race:
      return "host race: the host touches memory before the work on it is known to be done";
    case RaceKind::idle_wait:
      return "idle wait: the event was never recorded, so the wait orders nothing";
    case RaceKind::callback_calls_driver:
      return "callback calls the driver: a host function may not";
    case RaceKind::invalid_free:
      return "invalid free: there is no live block or allocation";
    case RaceKind::lost_join:
      return "lost join: forked work never joined the capture again";
  }
  return "unknown";
}

std::string CallStack::to_string() const {
  std::string text;
  for (const void* frame : frames) text += describe_frame(frame) + "\n";
  return text;
}

std::string RaceReport::to_string() const {
  const bool touches_memory = bytes != 0;
  std::string text = std::string("cistern: race detector: ") + cistern::to_string(kind) + "\n";
  if (touches_memory) {
    text += "  " + std::to_string(bytes) + " bytes at " + hexadecimal(address);
    if (block) text += describe(*this, *block);
    text += "\n";
  }
  text += "  " + describe(earlier, touches_memory) + places_of(earlier);
  if (later) text += "  then " + describe(*later, touches_memory) + places_of(*later);
  if (block && !block->allocated.frames.empty()) text += "  allocated from\n" + indented(block->allocated);
  if (block && !block->freed.frames.empty()) text += "  freed from\n" + indented(block->freed);
  return text;
}

}  // namespace cistern
