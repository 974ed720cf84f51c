// Devices, copies and fills: what the allocator's tests beside this rest on.

#include <algorithm>
#include <vector>

#include "tests/gpu/heap_on_device.h"

namespace cistern {
namespace {

class DeviceMemory : public HeapOnDevice {};

TEST_F(DeviceMemory, TheDeviceSaysWhatItIs) {
  ASSERT_GE(device_count(), 1);
  const DeviceProperties properties = device_properties();
  const MemoryInfo memory = memory_info();
  EXPECT_FALSE(properties.name.empty());
  EXPECT_GT(memory.free, 0u);
  EXPECT_LE(memory.free, memory.total);
  EXPECT_GE(properties.total_memory, memory.total);
  RecordProperty("device", properties.name);
}

TEST_F(DeviceMemory, BytesComeBackAsTheyWentIn) {
  const Stream stream = Stream::create();
  std::vector<unsigned char> sent(3 * kMiB + 17), received(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<unsigned char>(i * 31 + i / 257);

  DeviceBuffer<unsigned char> first(sent.size(), stream), second(sent.size(), stream);
  copy_async(first.data(), sent.data(), sent.size(), stream);
  copy_async(second.data(), first.data(), sent.size(), stream);
  copy_async(received.data(), second.data(), sent.size(), stream);
  stream.synchronize();
  EXPECT_EQ(received, sent);
}

TEST_F(DeviceMemory, AFillWritesItsRangeAndNothingBeside) {
  const Stream stream = Stream::create();
  std::vector<unsigned char> bytes(4096);
  DeviceBuffer<unsigned char> buffer(bytes.size(), stream);
  fill_async(buffer.data(), 1, bytes.size(), stream);
  fill_async(buffer.data() + 1000, 2, 500, stream);
  copy_async(bytes.data(), buffer.data(), bytes.size(), stream);
  stream.synchronize();
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 1), 4096 - 500);
  EXPECT_EQ(std::count(bytes.begin() + 1000, bytes.begin() + 1500, 2), 500);
}

TEST_F(DeviceMemory, BlocksOfOneMomentShareNoByte) {
  const Stream stream = Stream::create();
  std::vector<DeviceBuffer<unsigned char>> buffers;
  for (std::size_t i = 0; i < 64; ++i) {
    buffers.emplace_back((i % 4 == 0 ? 2 * kMiB : 700) + 512 * i, stream);
    fill_async(buffers.back().data(), static_cast<unsigned char>(i + 1), buffers.back().size(), stream);
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    std::vector<unsigned char> bytes(buffers[i].size());
    copy_async(bytes.data(), buffers[i].data(), bytes.size(), stream);
    stream.synchronize();
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), i + 1), static_cast<std::ptrdiff_t>(bytes.size())) << i;
  }
}

TEST_F(DeviceMemory, AnEventOrdersTwoStreams) {
  const Stream writer = Stream::create(), reader = Stream::create();
  DeviceBuffer<unsigned char> buffer(64 * kMiB, writer);
  std::vector<unsigned char> bytes(4096);
  fill_async(buffer.data(), 1, buffer.size(), writer);
  writer.synchronize();

  Roadblock roadblock(writer);
  fill_async(buffer.data(), 2, buffer.size(), writer);
  const Event written = writer.record_event();
  EXPECT_FALSE(written.query());
  reader.wait_event(written);
  copy_async(buffer.data(), buffer.data() + 32 * kMiB, 4096, reader);
  EXPECT_FALSE(reader.query());
  roadblock.open();
  copy_async(bytes.data(), buffer.data(), bytes.size(), reader);
  reader.synchronize();
  EXPECT_TRUE(written.query());
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 2), 4096);
}

}  // namespace
}  // namespace cistern
