// torch.cuda.comm: communication collectives. Run with two devices and with four.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include <cstring>
#include <utility>
#include <vector>

#include "tests/frameworks/framework_device.h"

namespace cistern {
namespace {

using comm::broadcast;
using comm::broadcast_coalesced;
using comm::gather;
using comm::reduce_add;
using comm::scatter;
using ::testing::HasSubstr;
using Shape = std::vector<std::int64_t>;
using Values = std::vector<float>;

class TorchCudaComm : public FrameworkDevice {
 protected:
  static std::vector<Device> devices() {
    std::vector<Device> all;
    for (int device = 0; device < device_count(); ++device) all.emplace_back(device);
    return all;
  }
  static Values values(std::size_t count, float from = 0) {
    Values all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = from + static_cast<float>(i);
    return all;
  }
  // Somebody's tensor, filled on the current stream of its device.
  static Tensor tensor(const Values& values, Shape shape, const Place& place) {
    Tensor made = Tensor::empty(std::move(shape), DType::float32, place);
    const std::size_t bytes = values.size() * sizeof(float);
    if (place.is_host())
      std::memcpy(made.data(), values.data(), bytes);
    else
      copy_async(made.data(), values.data(), bytes, current_stream(made.view().place.device()));
    return made;
  }
  // Of contiguous ones; waits.
  static Values read(const TensorView& tensor) {
    Values all(static_cast<std::size_t>(tensor.elements()));
    if (tensor.place.is_host()) {
      std::memcpy(all.data(), tensor.first(), tensor.bytes());
      return all;
    }
    const Stream stream = current_stream(tensor.place.device());
    copy_async(all.data(), tensor.first(), tensor.bytes(), stream);
    stream.synchronize();
    return all;
  }
  template <class Call>
  static std::string refused(const Call& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  }
};

template <class... Args>
concept Broadcasts = requires(const Args&... args) {
  broadcast(args...);
};
template <class... Args>
concept Scatters = requires(const Args&... args) {
  scatter(args...);
};
template <class... Args>
concept Gathers = requires(const Args&... args) {
  gather(args...);
};
using Views = std::vector<TensorView>;
using Devices = std::vector<Device>;

TEST_F(TorchCudaComm, BroadcastsFromHostAndDevice) {
  for (const Place& place : {Place::host(), Place(1)}) {
    const Tensor given = tensor(values(6), {2, 3}, place);
    const std::vector<Tensor> copies = broadcast(given, devices());
    for (const Tensor& copy : copies) EXPECT_EQ(read(copy), values(6));
  }
}

TEST_F(TorchCudaComm, BroadcastReturnsCopiesOnTheDevicesInTheirOrder) {
  const Tensor given = tensor(values(6), {2, 3}, 0);
  const std::vector<Tensor> copies = broadcast(given, {1, 0, 1});
  ASSERT_EQ(copies.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(copies[i].view().place, Place(i == 1 ? 0 : 1));
    EXPECT_EQ(copies[i].view().shape, (Shape{2, 3}));
    EXPECT_NE(copies[i].data(), given.data());
    EXPECT_EQ(read(copies[i]), values(6));
  }
  const DeviceGuard guard(1);
  EXPECT_EQ(broadcast(given, {"cuda"}).front().view().place, Place(1));
  EXPECT_THAT(refused([&] { static_cast<void>(broadcast(given, {99})); }), HasSubstr("99"));
}

TEST_F(TorchCudaComm, BroadcastFillsAndReturnsOut) {
  const Tensor given = tensor(values(6), {2, 3}, 0);
  const Tensor first = tensor(Values(6), {2, 3}, 1);
  const Tensor second = tensor(Values(6), {2, 3}, 0);
  const std::vector<TensorView> out = broadcast(given, Views{first, second});
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].data, first.view().data);
  EXPECT_EQ(read(out[0]), values(6));
  EXPECT_EQ(read(out[1]), values(6));
  const Tensor other = tensor(Values(6), {3, 2}, 1);
  const Tensor on_host = tensor(Values(6), {2, 3}, Place::host());
  EXPECT_THAT(refused([&] { broadcast(given, Views{other}); }), HasSubstr("expected [2, 3]"));
  EXPECT_THAT(refused([&] { broadcast(given, Views{on_host}); }), HasSubstr("expected one on a device"));
}

// In C it is an error: CApi.BroadcastsTensors.
TEST_F(TorchCudaComm, BroadcastTakesExactlyOneOfDevicesAndOut) {
  EXPECT_TRUE((Broadcasts<TensorView, Devices> && Broadcasts<TensorView, Views>));
  EXPECT_FALSE((Broadcasts<TensorView> || Broadcasts<TensorView, Devices, Views>));
}

TEST_F(TorchCudaComm, CoalescedTensorsAreAllInOnePlace) {
  const Tensor first = tensor(values(3), {3}, 1);
  const Tensor second = tensor(values(2, 7), {2}, 1);
  const Tensor elsewhere = tensor(values(2, 7), {2}, 0);
  const Tensor on_host = tensor(values(4), {4}, Place::host());
  EXPECT_THAT(refused([&] {
                static_cast<void>(broadcast_coalesced({first, elsewhere}, {0}));
              }),
              HasSubstr("expected all on one device"));
  EXPECT_THAT(refused([&] {
                static_cast<void>(broadcast_coalesced({first, on_host}, {0}));
              }),
              HasSubstr("expected all on one device"));
  EXPECT_EQ(read(broadcast_coalesced({on_host, on_host}, {1})[0][1]), values(4));
  EXPECT_EQ(read(broadcast_coalesced({first, second}, {0})[0][1]), values(2, 7));
}

TEST_F(TorchCudaComm, CoalescedCopiesAreThoseOfEachTensorOnEachDevice) {
  const Tensor first = tensor(values(6), {2, 3}, 0);
  const Tensor second = tensor(values(2, 7), {2}, 0);
  const std::vector<std::vector<Tensor>> copies = broadcast_coalesced({first, second}, devices());
  ASSERT_EQ(copies.size(), devices().size());
  for (std::size_t d = 0; d < copies.size(); ++d) {
    ASSERT_EQ(copies[d].size(), 2U);
    EXPECT_EQ(copies[d][0].view().place, Place(static_cast<int>(d)));
    EXPECT_EQ(copies[d][0].view().shape, (Shape{2, 3}));
    EXPECT_EQ(read(copies[d][0]), values(6));
    EXPECT_EQ(read(copies[d][1]), values(2, 7));
  }
}

TEST_F(TorchCudaComm, SmallTensorsAreCoalescedInABufferOfTenMebibytesUnlessSaid) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 12; ++i) tensors.push_back(tensor(Values(1 << 18), {1 << 18}, 0));  // a mebibyte each
  const Views views(tensors.begin(), tensors.end());
  const auto copies = [&](auto... buffer) {
    const std::uint64_t before = driver().calls("cuMemcpyPeerAsync");
    static_cast<void>(broadcast_coalesced(views, {1}, buffer...));
    return driver().calls("cuMemcpyPeerAsync") - before;
  };
  EXPECT_EQ(copies(), 2U);
  EXPECT_EQ(copies(std::size_t{10485760}), 2U);
  EXPECT_EQ(copies(std::size_t{12} << 20), 1U);
  EXPECT_EQ(copies(std::size_t{3} << 20), 4U);
  EXPECT_EQ(copies(std::size_t{1} << 19), 12U);
}

TEST_F(TorchCudaComm, ReduceAddSumsInputsOfOneShapeTypeAndLayout) {
  std::vector<Tensor> inputs;
  for (const Device device : devices()) inputs.push_back(tensor(values(6, 10), {2, 3}, device));
  const Tensor sum = reduce_add(Views(inputs.begin(), inputs.end()));
  EXPECT_EQ(sum.view().shape, (Shape{2, 3}));
  EXPECT_EQ(sum.view().dtype, DType::float32);
  EXPECT_EQ(sum.view().strides, (Shape{3, 1}));
  Values expected = values(6, 10);
  for (float& value : expected) value *= static_cast<float>(device_count());
  EXPECT_EQ(read(sum), expected);
  const Tensor flat = tensor(values(6), {6}, 1);
  const Tensor integers = Tensor::empty({2, 3}, DType::int32, 1);
  const TensorView turned(inputs[1].view().data, DType::float32, {2, 3}, {1, 2}, 1);
  const Tensor on_host = tensor(values(6), {2, 3}, Place::host());
  const auto with = [&](const TensorView& other) {
    return refused([&] { static_cast<void>(reduce_add({inputs[0], other})); });
  };
  EXPECT_THAT(with(flat), HasSubstr("shape [6]: expected [2, 3]"));
  EXPECT_THAT(with(integers), HasSubstr("int32: expected float32"));
  EXPECT_THAT(with(turned), HasSubstr("expected the layout of input 0"));
  EXPECT_THAT(with(on_host), HasSubstr("expected one on a device"));
}

TEST_F(TorchCudaComm, ReduceAddGoesToTheDestinationOrTheCurrentDevice) {
  const Tensor first = tensor(values(6), {6}, 0);
  const Tensor second = tensor(values(6), {6}, 1);
  EXPECT_EQ(reduce_add({first, second}).view().place, Place(0));
  EXPECT_EQ(reduce_add({first, second}, 1).view().place, Place(1));
  const DeviceGuard guard(1);
  EXPECT_EQ(reduce_add({first, second}).view().place, Place(1));
  EXPECT_EQ(reduce_add({first, second}, 0).view().place, Place(0));
}

TEST_F(TorchCudaComm, ScattersFromHostAndDevice) {
  for (const Place& place : {Place::host(), Place(0)}) {
    const Tensor given = tensor(values(8), {8}, place);
    const std::vector<Tensor> parts = scatter(given, {0, 1});
    ASSERT_EQ(parts.size(), 2U);
    EXPECT_EQ(read(parts[0]), values(4));
    EXPECT_EQ(read(parts[1]), values(4, 4));
  }
}

TEST_F(TorchCudaComm, ScatterReturnsChunksOnTheDevicesInTheirOrder) {
  const Tensor given = tensor(values(8), {4, 2}, 0);
  const std::vector<Tensor> parts = scatter(given, {1, 0});
  EXPECT_EQ(parts[0].view().place, Place(1));
  EXPECT_EQ(parts[1].view().place, Place(0));
  EXPECT_EQ(parts[1].view().shape, (Shape{2, 2}));
  EXPECT_THROW(static_cast<void>(scatter(given, {0, 99})), InvalidArgument);
  EXPECT_THROW(static_cast<void>(scatter(given, Devices{})), InvalidArgument);
  std::vector<Tensor> all = scatter(tensor(values(4), {4}, 0), devices());
  ASSERT_EQ(all.size(), devices().size());
  EXPECT_EQ(read(all.back()).back(), 3);
}

TEST_F(TorchCudaComm, ScatterCutsTheSizesThatAreGivenElseEqualOnes) {
  const Tensor given = tensor(values(7), {7}, 0);
  const auto sizes_of = [](const std::vector<Tensor>& parts) {
    Shape sizes;
    for (const Tensor& part : parts) sizes.push_back(part.view().shape[0]);
    return sizes;
  };
  EXPECT_EQ(sizes_of(scatter(given, {0, 1}, Shape{2, 5})), (Shape{2, 5}));
  EXPECT_EQ(sizes_of(scatter(given, {0, 1})), (Shape{4, 3}));
  EXPECT_EQ(sizes_of(scatter(given, {0, 1, 0})), (Shape{3, 3, 1}));
  EXPECT_THAT(refused([&] {
                static_cast<void>(scatter(given, {0, 1}, Shape{7}));
              }),
              HasSubstr("1 chunk sizes for 2 devices"));
  EXPECT_THAT(refused([&] {
                static_cast<void>(scatter(given, {0, 1}, Shape{2, 4}));
              }),
              HasSubstr("expected 7 together"));
}

TEST_F(TorchCudaComm, ScatterCutsAlongADimensionTheFirstByDefault) {
  const Tensor given = tensor(values(6), {2, 3}, 0);
  EXPECT_EQ(read(scatter(given, {0, 1})[1]), values(3, 3));
  const std::vector<Tensor> columns = scatter(given, {0, 1}, Shape{1, 2}, 1);
  EXPECT_EQ(read(columns[0]), (Values{0, 3}));
  EXPECT_EQ(read(columns[1]), (Values{1, 2, 4, 5}));
  EXPECT_EQ(read(scatter(given, {0, 1}, Shape{1, 2}, -1)[0]), (Values{0, 3}));
  EXPECT_THROW(static_cast<void>(scatter(given, {0}, std::nullopt, 2)), InvalidArgument);
}

TEST_F(TorchCudaComm, ScatterUsesTheDefaultStreamsUnlessOthersAreGiven) {
  const Tensor given = tensor(values(8), {8}, Place::host());
  const Stream current = Stream::create({.device = 1});
  const StreamGuard guard(current);
  std::vector<Tensor> parts = scatter(given, {1});
  EXPECT_FALSE(default_stream(1).query());
  driver().run_until_idle();
  const Stream chosen = Stream::create({.device = 1});
  parts = scatter(given, {1}, std::nullopt, 0, {chosen});
  EXPECT_FALSE(chosen.query());
  EXPECT_TRUE(default_stream(1).query());
  EXPECT_TRUE(current.query());
  current.wait_stream(chosen);
  EXPECT_EQ(read(parts[0]), values(8));
  parts[0] = Tensor();
  const Stream of_other = Stream::create({.device = 0});
  EXPECT_THAT(refused([&] { static_cast<void>(scatter(given, {1}, std::nullopt, 0, {of_other})); }),
              HasSubstr("expected one of device 1"));
}

TEST_F(TorchCudaComm, ScatterFillsAndReturnsOut) {
  const Tensor given = tensor(values(8), {4, 2}, 0);
  const Tensor first = tensor(Values(2), {1, 2}, 1);
  const Tensor second = tensor(Values(6), {3, 2}, 0);
  const std::vector<TensorView> out = scatter(given, Views{first, second});
  EXPECT_EQ(out[1].data, second.view().data);
  EXPECT_EQ(read(out[0]), values(2));
  EXPECT_EQ(read(out[1]), values(6, 2));
  EXPECT_THAT(refused([&] { scatter(given, Views{first, first}); }), HasSubstr("expected 4 together"));
  const Tensor wide = tensor(Values(9), {3, 3}, 0);
  EXPECT_THAT(refused([&] { scatter(given, Views{first, wide}); }), HasSubstr("expected [4, 2] but for dimension 0"));
}

// In C it is an error: CApi.SumsCutsAndJoinsTensors.
TEST_F(TorchCudaComm, ScatterTakesExactlyOneOfDevicesAndOutAndNoSizesWithOut) {
  EXPECT_TRUE((Scatters<TensorView, Devices, Shape> && Scatters<TensorView, Views>));
  EXPECT_FALSE((Scatters<TensorView> || Scatters<TensorView, Devices, Views> || Scatters<TensorView, Views, Shape>));
}

TEST_F(TorchCudaComm, GatherJoinsTensorsWhoseOtherSizesMatch) {
  const Tensor first = tensor(values(4), {2, 2}, 0);
  const Tensor second = tensor(values(2, 4), {1, 2}, 1);
  const Tensor joined = gather({first, second});
  EXPECT_EQ(joined.view().shape, (Shape{3, 2}));
  EXPECT_EQ(read(joined), values(6));
  std::vector<Tensor> parts = scatter(tensor(values(12), {12}, 0), devices());
  EXPECT_EQ(read(gather(Views(parts.begin(), parts.end()))), values(12));
  EXPECT_THAT(refused([&] {
                static_cast<void>(gather({first, second}, 1));
              }),
              HasSubstr("expected [2, 2] but for dimension 1"));
  EXPECT_THROW(static_cast<void>(gather({})), InvalidArgument);
}

TEST_F(TorchCudaComm, GatherJoinsAlongADimensionTheFirstByDefault) {
  const Tensor first = tensor({0, 3}, {2, 1}, 0);
  const Tensor second = tensor({1, 2, 4, 5}, {2, 2}, 1);
  EXPECT_EQ(read(gather({first, second}, 1)), values(6));
  EXPECT_EQ(read(gather({first, second}, -1)), values(6));
  EXPECT_THROW(static_cast<void>(gather({first, second}, 2)), InvalidArgument);
}

TEST_F(TorchCudaComm, GatherGoesToTheDestinationOrTheCurrentDevice) {
  const Tensor first = tensor(values(2), {2}, 0);
  const Tensor second = tensor(values(2, 2), {2}, 1);
  EXPECT_EQ(gather({first, second}).view().place, Place(0));
  EXPECT_EQ(gather({first, second}, 0, "cuda:1").view().place, Place(1));
  const DeviceGuard guard(1);
  EXPECT_EQ(gather({first, second}).view().place, Place(1));
  const Tensor on_host = gather({first, second}, 0, "cpu");
  EXPECT_EQ(on_host.view().place, Place::host());
  EXPECT_EQ(read(on_host), values(4));
}

TEST_F(TorchCudaComm, GatherFillsAndReturnsOut) {
  const Tensor first = tensor(values(2), {2}, 0);
  const Tensor second = tensor(values(2, 2), {2}, 1);
  for (const Place& place : {Place(1), Place::host()}) {
    const Tensor out = tensor(Values(4), {4}, place);
    EXPECT_EQ(gather({first, second}, 0, out).data, out.view().data);
    EXPECT_EQ(read(out), values(4));
  }
  const Tensor small = tensor(Values(3), {3}, 0);
  EXPECT_THAT(refused([&] { gather({first, second}, 0, small); }), HasSubstr("expected [4]"));
}

// In C it is an error: CApi.SumsCutsAndJoinsTensors.
TEST_F(TorchCudaComm, GatherTakesNoDestinationWithOut) {
  EXPECT_TRUE((Gathers<Views> && Gathers<Views, int, Place> && Gathers<Views, int, TensorView>));
  EXPECT_FALSE((Gathers<Views, int, Place, TensorView> || Gathers<Views, int, TensorView, Place>));
}

}  // namespace
}  // namespace cistern
