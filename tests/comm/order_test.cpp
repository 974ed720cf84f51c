// What the race detector, virtual time and the call counters say of the collectives.

#include <cistern/allocator.h>
#include <cistern/error.h>

#include <algorithm>
#include <chrono>

#include "tests/comm/comm_case.h"

namespace cistern::comm {
namespace {

using std::chrono::milliseconds;

// Copies take time: a mebibyte between devices a millisecond.
class CommTime : public CommCase {
 protected:
  static constexpr std::int64_t kMiB = 1 << 20;
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE",
           "simulated:devices=4,capacity=1GiB,races=report,peer_bandwidth=1000MiB,host_bandwidth=1000MiB,"
           "memory_bandwidth=1000000MiB",
           1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  static std::chrono::nanoseconds now() {
    driver().run_until_idle();
    std::chrono::nanoseconds latest{};
    for (int device = 0; device < 4; ++device) latest = std::max(latest, driver().virtual_time(device));
    return latest;
  }
  // What `call` takes of virtual time, in milliseconds rounded down.
  template <class Call>
  static std::int64_t milliseconds_of(const Call& call) {
    const auto before = now();
    const auto result = call();
    return std::chrono::duration_cast<milliseconds>(now() - before).count();
  }
  static std::vector<Given> mebibytes_on(const std::vector<int>& devices) {
    std::vector<Given> given;
    for (const int device : devices) given.emplace_back(std::vector<std::uint8_t>(kMiB), Shape{1024, 1024}, device);
    return given;
  }
};

TEST_F(CommTime, CopiesToSeveralDevicesOverlap) {
  const std::vector<Given> given = mebibytes_on({0});
  EXPECT_EQ(milliseconds_of([&] { return broadcast(given[0], {1}); }), 1);
  EXPECT_EQ(milliseconds_of([&] { return broadcast(given[0], {1, 2, 3}); }), 1);
  EXPECT_EQ(milliseconds_of([&] { return broadcast_coalesced({given[0]}, {1, 2, 3}); }), 1);
  EXPECT_EQ(milliseconds_of([&] { return scatter(given[0], {1, 2, 3, 1}); }), 0);  // half of it goes to device 1
  const Given on_host(std::vector<std::uint8_t>(3 * kMiB), {3, kMiB}, Place::host());
  EXPECT_EQ(milliseconds_of([&] { return scatter(on_host, {1, 2, 3}); }), 1);
}

TEST_F(CommTime, CopiesFromSeveralDevicesOverlap) {
  const std::vector<Given> given = mebibytes_on({1, 2, 3});
  const std::vector<TensorView> tensors(given.begin(), given.end());
  EXPECT_EQ(milliseconds_of([&] { return gather(tensors, 0, 0); }), 1);
  EXPECT_EQ(milliseconds_of([&] { return gather(tensors, 1, 0); }), 1);
  EXPECT_EQ(milliseconds_of([&] { return reduce_add(tensors, 0); }), 1);
  EXPECT_EQ(milliseconds_of([&] { return gather(tensors, 0, "cpu"); }), 1);
}

class CommOrder : public CommCase {
 protected:
  static void busy(const Stream& stream) {
    simulated::launch(stream, {}, {}, milliseconds(1), [] {});
  }
  // Work of a stream that writes to a tensor's memory.
  static void overwrite(const TensorView& tensor, const Stream& stream) {
    simulated::launch(stream, {}, {{tensor.data, tensor.bytes()}}, milliseconds(1),
                      [tensor] { std::memset(tensor.data, 0x55, tensor.bytes()); });
  }
};

TEST_F(CommOrder, NoCallWaitsForTheDevices) {
  const Given first(counted(8), {2, 4}, {1, 2}, 0);
  const Given second(counted(8), {2, 4}, {1, 2}, 1);
  const Given on_host(counted(8), {2, 4}, {1, 2}, Place::host());
  for (int device = 0; device < 4; ++device) busy(default_stream(device));
  const std::uint64_t before = driver().host_synchronizations();
  static_cast<void>(broadcast(first, {1, 2}));
  static_cast<void>(broadcast(on_host, {1, 2}));
  static_cast<void>(broadcast_coalesced({first, first}, {1, 2}));
  static_cast<void>(reduce_add({first, second}));
  static_cast<void>(scatter(first, {1, 2}, std::nullopt, 1));
  static_cast<void>(gather({first, second}));
  EXPECT_EQ(driver().host_synchronizations(), before);
  EXPECT_FALSE(default_stream(0).query());
}

TEST_F(CommOrder, InputsMayBeWrittenAndFreedAtOnce) {
  for (int round = 0; round < 2; ++round) {
    const Stream streams[] = {Stream::create({.device = 0}), Stream::create({.device = 1}),
                              Stream::create({.device = 2})};
    for (int device = 2; device >= 0; --device) set_stream(streams[device]);
    std::vector<Tensor> copies;
    Tensor sum;
    Tensor joined;
    {
      const Given first(counted(100), {10, 10}, {1, 10}, 0);
      const Given second(counted(100), {10, 10}, {1, 10}, 1);
      busy(streams[2]);  // the copies are still to come when the call returns
      copies = broadcast(first, {2, 1});
      for (Tensor& part : scatter(first, {2, 1}, std::nullopt, 1)) copies.push_back(std::move(part));
      auto coalesced = broadcast_coalesced({first, first}, {2});
      for (Tensor& each : coalesced.front()) copies.push_back(std::move(each));
      sum = reduce_add({second, first}, 2);
      joined = gather({second, first}, 1, 2);
      if (round == 0) {
        overwrite(first, streams[0]);
        overwrite(second, streams[1]);
      }
    }
    if (round == 1)  // their memory is used again at once
      for (int device = 0; device < 2; ++device) {
        const Tensor next = Tensor::empty({100}, DType::float32, device);
        overwrite(next, streams[device]);
      }
    EXPECT_EQ(values_of<float>(copies[0]), counted(100));
    EXPECT_EQ(values_of<float>(copies[2]), part(counted(100), {10, 10}, 1, 0, 5));
    EXPECT_EQ(values_of<float>(copies[5]), counted(100));
    EXPECT_EQ(values_of<float>(sum)[99], 200);

    for (int device = 2; device >= 0; --device) set_stream(default_stream(device));
    copies.clear();
    sum = Tensor();
    joined = Tensor();
    driver().run_until_idle();
  }
}

// The block is of one stream, and read on another that is current meanwhile. What is read may begin inside the block,
// between others of that stream.
class CommUses : public CommOrder, public ::testing::WithParamInterface<std::int64_t> {};

TEST_P(CommUses, OnOtherStreamsAreRecorded) {
  const Stream own = Stream::create({.device = 0});
  const Stream current = Stream::create({.device = 0});
  const auto used_by = [&](const auto& call) {
    const Tensor below = Tensor::empty({1000}, DType::float32, 0, own);
    Tensor tensor = Tensor::empty({1000}, DType::float32, 0, own);
    const Tensor above = Tensor::empty({1000}, DType::float32, 0, own);
    void* const block = tensor.data();
    const TensorView used(static_cast<float*>(block) + GetParam(), DType::float32, {1000 - GetParam()}, 0);
    current.wait_stream(own);
    {
      const StreamGuard guard(current);
      busy(current);
      const auto result = call(used);
      tensor = Tensor();
      const Tensor next = Tensor::empty({1000}, DType::float32, 0, own);
      EXPECT_NE(next.data(), block);
      overwrite(next, own);
    }
    driver().run_until_idle();
    empty_cache();
  };
  used_by([](const TensorView& tensor) { return broadcast(tensor, {0, 1}); });
  used_by([](const TensorView& tensor) { return broadcast_coalesced({tensor}, {1}); });
  used_by([](const TensorView& tensor) { return reduce_add({tensor, tensor}, 1); });
  used_by([](const TensorView& tensor) { return scatter(tensor, {1, 0}); });
  used_by([](const TensorView& tensor) { return gather({tensor}, 0, 1); });
  const auto size = static_cast<std::size_t>(1000 - GetParam());
  const Given other(counted(size), {1000 - GetParam()}, 1);
  used_by([&](const TensorView& tensor) { return broadcast(other, std::vector<TensorView>{tensor}); });
  used_by([&](const TensorView& tensor) { return gather({other}, 0, tensor); });
  used_by([&](const TensorView& tensor) { return scatter(other, std::vector<TensorView>{tensor}); });
}
INSTANTIATE_TEST_SUITE_P(FromElement, CommUses, ::testing::Values(0, 1, 999), ::testing::PrintToStringParamName());

TEST_F(CommOrder, ResultsOfTheDefaultStreamAreRecordedOnTheCurrentOne) {
  set_options("stream_hand_over:done");
  const Given given(counted(1000), {1000}, 0);
  const Stream stream = Stream::create({.device = 1});
  const StreamGuard guard(stream);
  const DeviceGuard device(0);
  std::vector<Tensor> parts = scatter(given, {1});
  void* const block = parts.front().data();
  busy(stream);
  simulated::launch(stream, {{block, 4000}}, {}, milliseconds(1), [] {});
  parts.clear();
  const Tensor next = Tensor::empty({1000}, DType::float32, 1, default_stream(1));
  EXPECT_NE(next.data(), block);
  overwrite(next, default_stream(1));
}

TEST_F(CommOrder, OutTensorsAreWrittenBehindEarlierWorkAndBeforeLater) {
  const Given given(counted(1000), {1000}, 0);
  const Given out(std::vector<float>(1000), {1000}, 1);
  const Stream stream = Stream::create({.device = 1});
  default_stream(1).synchronize();
  const StreamGuard guard(stream);
  for (int i = 0; i < 3; ++i) {
    overwrite(out, stream);
    if (i == 0) broadcast(given, std::vector<TensorView>{out});
    if (i == 1) scatter(given, std::vector<TensorView>{out});
    if (i == 2) gather({given}, 0, out);
    EXPECT_EQ(values_of<float>(out), counted(1000));
  }
}

TEST_F(CommOrder, FailedCallsLeaveNoMemoryAndNoRace) {
  const Given first(counted(100), {10, 10}, {1, 10}, 0);
  const Given second(counted(100), {10, 10}, {1, 10}, 1);
  const std::int64_t live[] = {static_cast<std::int64_t>(memory_allocated(0)),
                               static_cast<std::int64_t>(memory_allocated(1))};
  int failures = 0;
  const auto each_call_fails = [&](const auto& call) {
    for (const char* entry : {"cuMemcpyPeerAsync", "cuStreamWaitEvent", "cuEventRecord", "cuMemcpyAsync", "cuMemAlloc",
                              "cuStreamSynchronize"}) {
      for (std::uint64_t k = 1; k < 20; ++k) {
        driver().clear_faults();
        empty_cache();
        const std::uint64_t before = driver().faults_injected();
        driver().fail_call(entry, k, entry == std::string("cuMemAlloc") ? 2 : 999);
        try {
          call();
        } catch (const Error&) {
          ++failures;
        }
        for (int device = 0; device < 2; ++device)
          overwrite(Tensor::empty({100}, DType::float32, device), default_stream(device));
        driver().run_until_idle();
        EXPECT_EQ(static_cast<std::int64_t>(memory_allocated(0)), live[0]);
        EXPECT_EQ(static_cast<std::int64_t>(memory_allocated(1)), live[1]);
        EXPECT_EQ(memory_allocated(2), 0U);
        if (driver().faults_injected() == before) break;
      }
    }
    driver().clear_faults();
  };
  ::testing::internal::CaptureStderr();
  each_call_fails([&] { static_cast<void>(broadcast(first, {1, 2})); });
  each_call_fails([&] { static_cast<void>(broadcast_coalesced({first, first}, {1, 2})); });
  each_call_fails([&] { static_cast<void>(reduce_add({first, second}, 2)); });
  each_call_fails([&] { static_cast<void>(scatter(first, {1, 2}, std::nullopt, 1)); });
  each_call_fails([&] { static_cast<void>(gather({first, second}, 1, 2)); });
  each_call_fails([&] { static_cast<void>(gather({first, second}, 1, "cpu")); });
  static_cast<void>(::testing::internal::GetCapturedStderr());
  EXPECT_GT(failures, 40);
}

TEST_F(CommOrder, AFailedWaitLeavesNoCopyToTheHostUnderWay) {
  const Given first(counted(100), {100}, 0);
  const Given second(counted(100), {100}, 1);
  const Given strided(counted(200), {200}, {2}, Place::host());
  for (const Given* last : {&first, &second}) {
    for (int device = 0; device < 2; ++device) default_stream(device).synchronize();
    for (std::uint64_t k = 1; k <= 2; ++k) {
      for (int device = 0; device < 2; ++device) busy(default_stream(device));
      driver().fail_call("cuStreamSynchronize", k, 999);
      EXPECT_THROW(gather({last == &first ? second : first, *last}, 0, strided), DriverError);
      driver().clear_faults();
      for (int device = 0; device < 2; ++device) EXPECT_TRUE(default_stream(device).query()) << device;
    }
  }
}

// A stream of device 1 that captures, and one of device 0 that does not.
class CommCapture : public CommOrder {
 protected:
  void SetUp() override {
    set_stream(other_);
    set_stream(default_stream(0));
    other_.begin_capture(CaptureMode::relaxed);
  }
  // The capture is whole, and of nothing.
  void expect_no_nodes() {
    EXPECT_EQ(other_.is_capturing(), CaptureStatus::active);
    EXPECT_EQ(other_.end_capture().node_count(), 0U);
  }
  Given on_host_{counted(6), {2, 3}, {1, 2}, Place::host()};
  Given here_{counted(6), {6}, 0};
  Given out_{std::vector<float>(6), {2, 3}, 0};
  Given there_{std::vector<float>(6), {2, 3}, 1};
  Given part_here_{std::vector<float>(3), {3}, 0};
  Given part_there_{std::vector<float>(3), {3}, 1};
  Stream other_ = Stream::create({.device = 1});
};

TEST_F(CommCapture, TheHostPacksForNoneThatCaptures) {
  EXPECT_THROW(broadcast(on_host_, std::vector<TensorView>{out_, there_}), NotSupported);
  expect_no_nodes();
}

TEST_F(CommCapture, TheHostCoalescesForNoneThatCaptures) {
  const Given plain(counted(6), {6}, Place::host());
  const PoolId id = graph_pool_handle();
  begin_allocate_to_pool(1, id, PoolFilter::stream(other_));
  EXPECT_THROW(static_cast<void>(broadcast_coalesced({plain, plain}, {0, 1})), NotSupported);
  EXPECT_THROW(static_cast<void>(broadcast_coalesced({on_host_}, {0, 1})), NotSupported);
  end_allocate_to_pool(1, id);
  expect_no_nodes();
  release_pool(1, id);
}

TEST_F(CommCapture, GatherToTheHostLeavesTheCaptureWhole) {
  const Given to(std::vector<float>(12), {12}, Place::host());
  TensorView flat = there_;
  flat.shape = {6};
  flat.strides = {1};
  EXPECT_THROW(gather({here_, flat}, 0, to), NotSupported);
  EXPECT_THROW(static_cast<void>(gather({here_, flat}, 0, "cpu")), NotSupported);
  expect_no_nodes();
}

TEST_F(CommCapture, TheHostScattersForNoneThatCaptures) {
  const Given strided(counted(12), {6, 2}, {1, 6}, Place::host());
  const std::int64_t live = static_cast<std::int64_t>(memory_allocated(0));
  driver().run_until_idle();
  EXPECT_THROW(static_cast<void>(scatter(strided, {0, 1}, std::nullopt, 0, {default_stream(0), other_})), NotSupported);
  EXPECT_EQ(static_cast<std::int64_t>(memory_allocated(0)), live);
  EXPECT_TRUE(default_stream(0).query()) << "nothing was queued for the other part";
  expect_no_nodes();
}

// The default stream, which nobody may ask for while others capture, is not asked for.
TEST_F(CommCapture, ScatterOnDefaultStreamsLeavesTheCaptureWhole) {
  EXPECT_THROW(static_cast<void>(scatter(here_, {0, 1})), NotSupported);
  EXPECT_THROW(scatter(here_, std::vector<TensorView>{part_here_, part_there_}), NotSupported);
  expect_no_nodes();
}

TEST_F(CommOrder, AreCapturedAndLaunchedAgain) {
  const Stream stream = Stream::create({.device = 0});
  const Given given(counted(6), {2, 3}, {1, 2}, 0);
  const Given out(std::vector<float>(6), {2, 3}, 1);
  const Given on_host(counted(6), {2, 3}, {1, 2}, Place::host());
  for (int device = 0; device < 2; ++device) synchronize(device);
  const Stream other = Stream::create({.device = 1});
  const StreamGuard there(other);
  const StreamGuard guard(stream);
  static_cast<void>(broadcast(given, {1}));  // peers are known
  for (int device = 0; device < 2; ++device) synchronize(device);
  const PoolId id = graph_pool_handle();
  stream.begin_capture();
  begin_allocate_to_pool(0, id, PoolFilter::stream(stream));
  other.wait_stream(stream);
  broadcast(given, std::vector<TensorView>{out});
  EXPECT_THROW(broadcast(on_host, std::vector<TensorView>{out}), NotSupported);
  EXPECT_THROW(scatter(on_host, std::vector<TensorView>{out}, 0, {other}), NotSupported);
  end_allocate_to_pool(0, id);
  Graph graph = stream.end_capture();
  for (int i = 0; i < 2; ++i) {
    other.wait_stream(stream);
    overwrite(out, other);
    stream.wait_stream(other);
    graph.launch(stream);
    other.wait_stream(stream);
    EXPECT_EQ(values_of<float>(out), counted(6));
  }
  release_pool(0, id);
}

TEST_F(CommOrder, EnablePeerAccessOnDemandOnceAPair) {
  const Given given(counted(6), {6}, 3);
  const std::size_t before = peer_access_count();
  static_cast<void>(broadcast(given, {1, 2}));
  EXPECT_EQ(peer_access_count(), before + 2);
  const std::uint64_t calls = driver().calls("cuDeviceCanAccessPeer");
  static_cast<void>(broadcast(given, {1, 2}));
  EXPECT_EQ(driver().calls("cuDeviceCanAccessPeer"), calls);
  EXPECT_EQ(peer_access_count(), before + 2);
}

TEST(CommWithoutPeers, GoesThroughTheHost) {
  setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=1GiB,peers=none", 1);
  const Given given(counted(6), {6}, 0);
  EXPECT_EQ(values_of<float>(broadcast(given, {1}).front()), counted(6));
  EXPECT_EQ(values_of<float>(reduce_add({given, given}, 1))[5], 12);
  EXPECT_EQ(peer_access_count(), 0U);
}

}  // namespace
}  // namespace cistern::comm
