// Cutting a tensor, and joining its parts.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include "tests/comm/comm_case.h"

namespace cistern::comm {
namespace {

using ::testing::HasSubstr;
using Sizes = std::vector<std::int64_t>;

const Shape kShape{4, 6, 5};
const std::vector<std::int32_t>& values() {
  static const std::vector<std::int32_t> all = counted<std::int32_t>(120);
  return all;
}

class Scatter : public CommCase {
 protected:
  static void expect_parts(const std::vector<Tensor>& parts, const Sizes& sizes, std::size_t dim) {
    ASSERT_EQ(parts.size(), sizes.size());
    std::int64_t first = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Shape shape = kShape;
      shape[dim] = sizes[i];
      EXPECT_EQ(parts[i].view().shape, shape);
      EXPECT_TRUE(parts[i].view().is_contiguous());
      EXPECT_EQ(values_of<std::int32_t>(parts[i]), part(values(), kShape, dim, first, sizes[i]));
      first += sizes[i];
    }
  }
};

TEST_F(Scatter, CutsAlongEachDimensionFromDevicesAndTheHost) {
  for (const Place& place : {Place(0), Place(2), Place::host()}) {
    const Given rowed(values(), kShape, place);
    const Given apart(values(), kShape, {200, 20, 3}, place);
    for (const Given* given : {&rowed, &apart}) {
      expect_parts(scatter(*given, {0, 1, 2}, Sizes{1, 3, 0}), {1, 3, 0}, 0);
      expect_parts(scatter(*given, {3, 1}, Sizes{2, 4}, 1), {2, 4}, 1);
      expect_parts(scatter(*given, {1, 1, 0}, Sizes{1, 1, 3}, -1), {1, 1, 3}, 2);
      expect_parts(scatter(*given, {2}), {4}, 0);
    }
  }
}

TEST_F(Scatter, CutsEqualPartsAsFarAsTheyGo) {
  const Given given(values(), kShape, 0);
  expect_parts(scatter(given, {0, 1}, std::nullopt, 1), {3, 3}, 1);
  expect_parts(scatter(given, {0, 1, 2, 3}, std::nullopt, 1), {2, 2, 2}, 1);  // torch.chunk gives three, too
  expect_parts(scatter(given, {0, 1, 2}, std::nullopt, 2), {2, 2, 1}, 2);
  expect_parts(scatter(given, {0, 1, 2}), {2, 2}, 0);
  const TensorView none(nullptr, DType::int32, {0, 2}, 0);
  EXPECT_EQ(scatter(none, {1, 2}).size(), 2U);
}

TEST_F(Scatter, FillsTensorsThatAreGiven) {
  for (const Place& place : {Place(0), Place::host()}) {
    const Given given(values(), kShape, place);
    const Given first(std::vector<std::int32_t>(20), {4, 1, 5}, 1);
    const Given second(std::vector<std::int32_t>(60), {4, 3, 5}, {1, 30, 5}, 2);
    const Given third(std::vector<std::int32_t>(40), {4, 2, 5}, {30, 15, 2}, 0);
    const std::vector<TensorView> out = scatter(given, std::vector<TensorView>{first, second, third}, 1);
    EXPECT_EQ(values_of<std::int32_t>(out[0]), part(values(), kShape, 1, 0, 1));
    EXPECT_EQ(values_of<std::int32_t>(out[1]), part(values(), kShape, 1, 1, 3));
    EXPECT_EQ(values_of<std::int32_t>(out[2]), part(values(), kShape, 1, 4, 2));
    EXPECT_EQ(out[2].data, third.view().data);
  }
}

TEST_F(Scatter, RefusesSizesThatDoNotFit) {
  const Given given(values(), kShape, 0);
  const auto refused = [&](const std::vector<Device>& devices, const Sizes& sizes, int dim) {
    return error_of<InvalidArgument>([&] { static_cast<void>(scatter(given, devices, sizes, dim)); });
  };
  EXPECT_THAT(refused({0, 1}, {4}, 0), HasSubstr("1 chunk sizes for 2 devices"));
  EXPECT_THAT(refused({0, 1}, {1, 2}, 0), HasSubstr("chunk sizes [1, 2]: expected 4 together"));
  EXPECT_THAT(refused({0, 1}, {3, 2}, 0), HasSubstr("expected 4 together"));
  EXPECT_THAT(refused({0, 1}, {5, -1}, 0), HasSubstr("expected none below 0"));
  EXPECT_THAT(refused({0}, {4}, 3), HasSubstr("dimension 3 of a tensor of 3 dimensions: expected -3 to 2"));
  EXPECT_THAT(refused({0}, {4}, -4), HasSubstr("dimension -4"));
  EXPECT_THROW(static_cast<void>(scatter(given, std::vector<Device>{})), InvalidArgument);
  EXPECT_THROW(static_cast<void>(scatter(given, {0, 7})), InvalidArgument);
  const TensorView scalar(given.view().data, DType::int32, {}, 0);
  EXPECT_THROW(static_cast<void>(scatter(scalar, {0})), InvalidArgument);
  const Given small(std::vector<std::int32_t>(30), {1, 6, 5}, 1);
  const Given wide(std::vector<std::int32_t>(90), {3, 6, 5}, 1);
  const Given thin(std::vector<std::int32_t>(90), {3, 5, 6}, 1);
  const auto refused_out = [&](const std::vector<TensorView>& out) {
    return error_of<InvalidArgument>([&] { scatter(given, out); });
  };
  EXPECT_THAT(refused_out({small, small}), HasSubstr("expected 4 together"));
  EXPECT_THAT(refused_out({small, thin}),
              HasSubstr("out 1 of shape [3, 5, 6]: expected [4, 6, 5] but for dimension 0"));
  EXPECT_THROW(scatter(given, std::vector<TensorView>{}), InvalidArgument);
  scatter(given, std::vector<TensorView>{small, wide});
}

TEST_F(Scatter, WorksOnTheDefaultStreamsAndTheCurrentOnesWait) {
  const Given given(counted(1000), {1000}, Place::host());
  const Stream stream = Stream::create({.device = 1});
  const StreamGuard guard(stream);
  simulated::launch(default_stream(1), {}, {}, std::chrono::milliseconds(1), [] {});
  const std::vector<Tensor> parts = scatter(given, {1, 2});
  EXPECT_FALSE(stream.query());  // behind the work of the default stream
  driver().run_until_idle(default_stream(1).native_handle(), 1);
  EXPECT_EQ(values_of<float>(parts[0]), part(counted(1000), {1000}, 0, 0, 500));
  EXPECT_TRUE(default_stream(1).query());
}

TEST_F(Scatter, WorksOnTheStreamsThatAreGiven) {
  const Given given(counted(10), {10}, 0);
  const Stream stream = Stream::create({.device = 1});
  std::vector<Tensor> parts = scatter(given, {1, 2}, std::nullopt, 0, {stream, std::nullopt});
  EXPECT_FALSE(stream.query());
  EXPECT_TRUE(default_stream(1).query());
  EXPECT_FALSE(default_stream(2).query());
  const StreamGuard guard(stream);
  EXPECT_EQ(values_of<float>(parts[0]), counted(5));
  EXPECT_EQ(stream_stats(1).size(), 1U);  // its memory is the stream's
  const auto refused = [&](const Streams& streams) {
    return error_of<InvalidArgument>([&] { static_cast<void>(scatter(given, {1, 2}, std::nullopt, 0, streams)); });
  };
  EXPECT_THAT(refused({stream}), HasSubstr("1 streams for 2 devices"));
  EXPECT_THAT(refused({std::nullopt, stream}), HasSubstr("expected one of device 2"));
  const Given left(std::vector<float>(4), {4}, 1);
  const Given right(std::vector<float>(6), {6}, 2);
  scatter(given, std::vector<TensorView>{left, right}, 0, {stream, std::nullopt});
  EXPECT_EQ(values_of<float>(left), counted(4));
}

TEST_F(Scatter, WorksOnTheThreadsOwnDefaultStream) {
  const Given given(counted(10), {10}, Place::host());
  const Stream own = Stream::external(Stream::per_thread().native_handle(), 1);
  const Stream current = Stream::create({.device = 1});
  const StreamGuard guard(current);
  const DeviceGuard device(2);
  const std::vector<Tensor> parts = scatter(given, {1}, std::nullopt, 0, {Stream::per_thread()});
  EXPECT_FALSE(own.query());
  EXPECT_TRUE(current.query());  // it waits for no stream that is given
  own.synchronize();
  EXPECT_EQ(values_of<float>(parts.front()), counted(10));
}

class Gather : public CommCase {};

TEST_F(Gather, JoinsAlongEachDimensionOnDevicesAndTheHost) {
  const Given whole(values(), kShape, Place::host());
  for (const int dim : {0, 1, 2, -1, -3}) {
    const auto along = static_cast<std::size_t>(dim < 0 ? dim + 3 : dim);
    for (const bool are_apart : {false, true}) {
      std::vector<Given> parts;
      std::int64_t first = 0;
      for (const std::int64_t size : Sizes{2, 0, 1, kShape[along] - 3}) {
        Shape shape = kShape;
        shape[along] = size;
        const Shape strides = are_apart ? Shape{3, 400, 60} : rows(shape);
        parts.emplace_back(part(values(), kShape, along, first, size), shape, strides, static_cast<int>(parts.size()));
        first += size;
      }
      const std::vector<TensorView> tensors(parts.begin(), parts.end());
      for (const Place& place : {Place(0), Place(3), Place::host()}) {
        const Tensor joined = gather(tensors, dim, place);
        EXPECT_EQ(joined.view().place, place);
        EXPECT_EQ(joined.view().shape, kShape);
        EXPECT_EQ(values_of<std::int32_t>(joined), values()) << dim << " " << are_apart;
        const Given plain(std::vector<std::int32_t>(120), kShape, place);
        const Given apart(std::vector<std::int32_t>(120), kShape, {7, 28, 168}, place);
        for (const Given* out : {&plain, &apart}) {
          EXPECT_EQ(gather(tensors, dim, out->view()).data, out->view().data);
          EXPECT_EQ(values_of<std::int32_t>(*out), values());
        }
      }
    }
  }
}

TEST_F(Gather, GoesToTheCurrentDeviceByDefault) {
  const Given first(counted(2), {2}, 0);
  const Given second(counted(3, 3), {3}, 1);
  const DeviceGuard guard(2);
  const Tensor joined = gather({first, second});
  EXPECT_EQ(joined.view().place, Place(2));
  EXPECT_EQ(values_of<float>(joined), counted(5));
  EXPECT_EQ(gather({first, second}, 0, "cpu").view().place, Place::host());
  EXPECT_EQ(gather({first, second}, 0, "cuda:3").view().place, Place(3));
}

TEST_F(Gather, OfOneIsItsCopy) {
  const Given only(counted(6), {2, 3}, {1, 2}, 1);
  const Tensor joined = gather({only}, 1, 1);
  EXPECT_EQ(values_of<float>(joined), counted(6));
  EXPECT_NE(joined.data(), only.view().data);
}

TEST_F(Gather, RefusesWhatCannotBeJoined) {
  const Given first(counted(6), {2, 3}, 0);
  const Given second(counted(8), {2, 4}, 1);
  const Given integers(counted<std::int32_t>(6), {2, 3}, 1);
  const Given on_host(counted(6), {2, 3}, Place::host());
  const auto refused = [](const std::vector<TensorView>& tensors, int dim) {
    return error_of<InvalidArgument>([&] { static_cast<void>(gather(tensors, dim)); });
  };
  EXPECT_THAT(refused({}, 0), HasSubstr("no tensors"));
  EXPECT_THAT(refused({first, second}, 0), HasSubstr("tensor 1 of shape [2, 4]: expected [2, 3] but for dimension 0"));
  EXPECT_THAT(refused({first, integers}, 0), HasSubstr("tensor 1 of int32: expected float32"));
  EXPECT_THAT(refused({first, on_host}, 0), HasSubstr("tensor 1 is on the host"));
  EXPECT_THAT(refused({first, second}, 2), HasSubstr("dimension 2"));
  const Given out(counted(12), {2, 6}, 0);
  const auto refused_out = [&](int dim) {
    return error_of<InvalidArgument>([&] { gather({first, second}, dim, out); });
  };
  EXPECT_THAT(refused_out(1), HasSubstr("out of shape [2, 6]: expected [2, 7]"));
  EXPECT_THROW(static_cast<void>(gather({first}, 0, 9)), InvalidArgument);
  const TensorView many(nullptr, DType::int8, {std::int64_t{1} << 58, 0}, 0);
  EXPECT_THAT(refused(std::vector<TensorView>(64, many), 0), HasSubstr("the address space"));
}

}  // namespace
}  // namespace cistern::comm
