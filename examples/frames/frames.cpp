// Frames through two streams: one uploads, the other composes them with a graph and hands each
// result to a host function. The same program runs on the simulated driver and on a real one:
//
//   CISTERN_DEVICE=simulated:races=report cistern_frames     (or drive=free, or cuda)
//
// What it shows: memory of cistern used by two streams, guarded by events both ways; page-locked host
// memory; a graph captured once for each slot and launched for each frame; host functions in order.

#include <cistern/cistern.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>
#include <vector>

namespace {

using cistern::DeviceBuffer;
using cistern::Event;
using cistern::Graph;
using cistern::PinnedMemory;
using cistern::Stream;

constexpr std::size_t kQuarter = std::size_t{64} << 10;
constexpr std::size_t kFrame = 4 * kQuarter;
constexpr std::size_t kMargin = 4096;
constexpr std::size_t kCanvas = kMargin + kFrame;
constexpr unsigned char kMarginValue = 0xa5;
constexpr int kFrames = 24;
constexpr std::size_t kSlots = 2;

std::uint64_t checksum(const unsigned char* bytes, std::size_t count) {
  return std::accumulate(bytes, bytes + count, std::uint64_t{14695981039346656037U},
                         [](std::uint64_t sum, unsigned char byte) { return (sum ^ byte) * 1099511628211U; });
}

std::vector<unsigned char> frame(int number) {
  std::vector<unsigned char> bytes(kFrame);
  for (std::size_t i = 0; i < kFrame; ++i)
    bytes[i] = static_cast<unsigned char>((i * 31 + static_cast<std::size_t>(number) * 7) >> 3);
  return bytes;
}

// What composing a frame gives: a margin, then the quarters in reverse order.
std::uint64_t expected_checksum(int number) {
  const std::vector<unsigned char> from = frame(number);
  std::vector<unsigned char> canvas(kCanvas, kMarginValue);
  for (std::size_t quarter = 0; quarter < 4; ++quarter)
    std::memcpy(&canvas[kMargin + quarter * kQuarter], &from[(3 - quarter) * kQuarter], kQuarter);
  return checksum(canvas.data(), kCanvas);
}

// One of the frames under way. Its memory belongs to the upload stream; the compose stream uses
// it too.
struct Slot {
  explicit Slot(const Stream& upload) : input(kFrame, upload), canvas(kCanvas, upload) {}

  PinnedMemory source{kFrame};
  PinnedMemory result{kCanvas};
  DeviceBuffer<unsigned char> input;
  DeviceBuffer<unsigned char> canvas;
  Event uploaded;
  Event composed;
  Graph compose;
  std::atomic<std::uint64_t> sum{0};  // of the last frame that was composed
};

// Records the work of one frame once; each launch then does it with what the slot holds.
Graph capture_composition(Slot& slot, const Stream& stream) {
  cistern::CaptureGuard capture(stream);
  cistern::fill_async(slot.canvas.data(), kMarginValue, kMargin, stream);
  for (std::size_t quarter = 0; quarter < 4; ++quarter)
    cistern::copy_async(slot.canvas.data() + kMargin + quarter * kQuarter, slot.input.data() + (3 - quarter) * kQuarter,
                        kQuarter, stream);
  cistern::copy_async(slot.result.data(), slot.canvas.data(), kCanvas, stream);
  stream.launch_host_func(
      [&slot] { slot.sum = checksum(static_cast<const unsigned char*>(slot.result.data()), kCanvas); });
  return capture.end();
}

int count_wrong_frames() {
  const Stream upload = Stream::create();
  const Stream compose = Stream::create({.priority = -1});
  std::array<Slot, kSlots> slots{Slot(upload), Slot(upload)};
  for (Slot& slot : slots) {
    slot.input.record_stream(compose);
    slot.canvas.record_stream(compose);
    // The memory is the upload stream's until here.
    compose.wait_stream(upload);
    slot.compose = capture_composition(slot, compose);
  }
  int wrong = 0;
  const auto check = [&wrong, &slots](int number) {
    Slot& slot = slots[static_cast<std::size_t>(number) % kSlots];
    slot.composed.synchronize();
    if (slot.sum != expected_checksum(number)) ++wrong;
  };
  for (int number = 0; number < kFrames; ++number) {
    Slot& slot = slots[static_cast<std::size_t>(number) % kSlots];
    // The slot's former frame is done before the host writes its source and the device its input.
    if (number >= static_cast<int>(kSlots)) check(number - static_cast<int>(kSlots));
    const std::vector<unsigned char> bytes = frame(number);
    std::memcpy(slot.source.data(), bytes.data(), kFrame);
    upload.wait_event(slot.composed);
    cistern::copy_async(slot.input.data(), slot.source.data(), kFrame, upload);
    slot.uploaded.record(upload);
    compose.wait_event(slot.uploaded);
    slot.compose.launch(compose);
    slot.composed.record(compose);
  }
  for (int number = kFrames - static_cast<int>(kSlots); number < kFrames; ++number) check(number);
  return wrong;
}

}  // namespace

int main() try {
  const int wrong = count_wrong_frames();
  std::printf("%d frames on %s, %d wrong, %zu bytes allocated at the end\n", kFrames, cistern::device_name().c_str(),
              wrong, cistern::memory_allocated());
  return wrong == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "frames: %s\n", error.what());
  return 1;
}
