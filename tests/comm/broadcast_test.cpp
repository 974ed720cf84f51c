// Broadcasts, one by one and coalesced.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include "tests/comm/comm_case.h"

namespace cistern::comm {
namespace {

using ::testing::HasSubstr;

class Broadcast : public CommCase {};

TEST_F(Broadcast, CopiesFromADeviceToEachInTheirOrder) {
  const std::vector<float> values = counted(24);
  const Given given(values, {2, 3, 4}, 1);
  const std::vector<Tensor> copies = broadcast(given, {2, 0, 1, 2});
  ASSERT_EQ(copies.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    const TensorView& copy = copies[i];
    EXPECT_EQ(copy.place, Place(std::vector<int>{2, 0, 1, 2}[i]));
    EXPECT_EQ(copy.shape, (Shape{2, 3, 4}));
    EXPECT_TRUE(copy.is_contiguous());
    EXPECT_NE(copy.data, given.view().data);
    EXPECT_EQ(values_of<float>(copy), values);
  }
}

TEST_F(Broadcast, CopiesFromTheHostAndWhatLiesApart) {
  const std::vector<std::int16_t> values = counted<std::int16_t>(12);
  const Shape apart{50, 2};  // rows far from each other, gaps within
  for (const Place& place : {Place::host(), Place(3)}) {
    const Given given(values, {3, 4}, apart, place);
    for (const Tensor& copy : broadcast(given, {0, 3})) EXPECT_EQ(values_of<std::int16_t>(copy), values);
    const TensorView turned = given.view().transpose(0, 1);
    for (const Tensor& copy : broadcast(turned, {0, 3}))
      EXPECT_EQ(values_of<std::int16_t>(copy), (std::vector<std::int16_t>{1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12}));
    const TensorView same(given.view().data, DType::int16, {2, 5}, {0, 0}, place);  // one element, many times
    EXPECT_EQ(values_of<std::int16_t>(broadcast(same, {2}).front()), std::vector<std::int16_t>(10, 1));
  }
}

TEST_F(Broadcast, MovesEveryTypeAndShape) {
  for (int t = 0; t <= static_cast<int>(DType::complex128); ++t) {
    const auto type = static_cast<DType>(t);
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{0, 3}, Shape{2, 1, 3, 1, 2}}) {
      Shape apart = rows(shape);
      for (std::int64_t& stride : apart) stride *= 3;
      for (const Shape& strides : {rows(shape), apart}) {
        const std::size_t size = size_of(type);
        const std::size_t room = span(shape, strides) * size;
        const Given memory(counted<std::uint8_t>(room + 1), {static_cast<std::int64_t>(room + 1)}, 1);
        const TensorView view(memory.view().data, type, shape, strides, 1);
        const Tensor copy = std::move(broadcast(view, {2}).front());
        const std::vector<unsigned char> bytes = memory_of(copy);
        const std::vector<std::int64_t> at = offsets(shape, strides);
        ASSERT_EQ(bytes.size(), at.size() * size) << to_string(type);
        for (std::size_t i = 0; i < bytes.size(); ++i)
          ASSERT_EQ(bytes[i], static_cast<unsigned char>(1 + static_cast<std::size_t>(at[i / size]) * size + i % size));
      }
    }
  }
}

TEST_F(Broadcast, FillsTensorsThatAreGivenAndTouchesNothingElse) {
  const std::vector<float> values = counted(6);
  for (const Place& place : {Place(0), Place::host()}) {
    const Given given(values, {2, 3}, place);
    const Given plain(std::vector<float>(6), {2, 3}, 1);
    const Given apart(std::vector<float>(6), {2, 3}, {9, 2}, 2);
    const Given turned(std::vector<float>(6), {2, 3}, {1, 2}, 0);
    const std::vector<TensorView> out = broadcast(given, std::vector<TensorView>{plain, apart, turned});
    ASSERT_EQ(out.size(), 3U);
    for (const TensorView& each : out) EXPECT_EQ(values_of<float>(each), values);
    EXPECT_EQ(out[1].data, apart.view().data);
    const std::vector<unsigned char> bytes = memory_of(apart);
    EXPECT_EQ(std::vector<unsigned char>(bytes.begin() + 4, bytes.begin() + 8), std::vector<unsigned char>(4, 0xee));
  }
}

TEST_F(Broadcast, RefusesWhatCannotBeWithNothingQueued) {
  const Given given(counted(6), {2, 3}, 0);
  const Given other(counted(6), {3, 2}, 1);
  const Given integers(counted<std::int32_t>(6), {2, 3}, 1);
  const Given on_host(counted(6), {2, 3}, Place::host());
  const TensorView one_for_all(other.view().data, DType::float32, {2, 3}, {0, 1}, 1);
  const auto before = driver().calls_by_name()["cuMemcpyAsync"] + copies_between_devices();
  const MemoryStats stats = memory_stats();
  const auto refused = [&](const TensorView& tensor, const std::vector<TensorView>& out) {
    return error_of<InvalidArgument>([&] { broadcast(tensor, out); });
  };
  EXPECT_THAT(refused(given, {other}), HasSubstr("out 0 of shape [3, 2]: expected [2, 3]"));
  EXPECT_THAT(refused(given, {integers}), HasSubstr("out 0 of int32: expected float32"));
  EXPECT_THAT(refused(given, {on_host}), HasSubstr("out 0 is on the host: expected one on a device"));
  EXPECT_THAT(refused(given, {one_for_all}), HasSubstr("some of its elements may be one"));
  const auto view = [&](void* data, Shape shape, Shape strides, Place place) {
    return error_of<InvalidArgument>([&] {
      static_cast<void>(broadcast(TensorView(data, DType::float32, std::move(shape), std::move(strides), place), {1}));
    });
  };
  void* const data = given.view().data;
  EXPECT_THAT(view(nullptr, {2}, {1}, 0), HasSubstr("the address is null"));
  EXPECT_THAT(view(data, {2}, {1, 1}, 0), HasSubstr("1 sizes and 2 strides"));
  EXPECT_THAT(view(data, {-2}, {1}, 0), HasSubstr("expected none below 0"));
  EXPECT_THAT(view(data, {2}, {-1}, 0), HasSubstr("expected none below 0"));
  EXPECT_THAT(view(data, Shape(65, 1), Shape(65, 1), 0), HasSubstr("65 dimensions: expected no more than 64"));
  EXPECT_THAT(view(data, {std::int64_t{1} << 40, std::int64_t{1} << 40}, {1, 1}, 0), HasSubstr("address space"));
  EXPECT_THAT(view(data, {2}, {std::int64_t{1} << 62}, 0), HasSubstr("address space"));
  EXPECT_THAT(view(static_cast<char*>(data) + 1, {2}, {1}, 0), HasSubstr("expected a multiple of 4"));
  EXPECT_THAT(view(data, {2}, {1}, 1), HasSubstr("it is on device 0; expected device 1"));
  EXPECT_THAT(view(data, {2}, {1}, Place::host()), HasSubstr("it is on device 0; expected the host"));
  EXPECT_THAT(view(data, {2}, {1}, 9), HasSubstr("9"));
  EXPECT_THROW(static_cast<void>(broadcast(given, {0, 4})), InvalidArgument);
  EXPECT_EQ(driver().calls_by_name()["cuMemcpyAsync"] + copies_between_devices(), before);
  EXPECT_EQ(memory_stats().flat(), stats.flat());
}

TEST_F(Broadcast, OfNothingIsNothing) {
  const Given given(counted(6), {2, 3}, 0);
  EXPECT_TRUE(broadcast(given, std::vector<Device>{}).empty());
  const TensorView none(nullptr, DType::float32, {0, 3}, 0);
  const std::vector<Tensor> copies = broadcast(none, {1, 2});
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[1].view().shape, (Shape{0, 3}));
  EXPECT_EQ(copies[1].data(), nullptr);
}

class BroadcastCoalesced : public CommCase {
 protected:
  // Copies that reach a device, and the bytes of all tensors together.
  static std::uint64_t copies_for(const std::vector<TensorView>& tensors, std::size_t buffer_bytes) {
    const std::uint64_t before = copies_between_devices();
    static_cast<void>(broadcast_coalesced(tensors, {1}, buffer_bytes));
    return copies_between_devices() - before;
  }
};

TEST_F(BroadcastCoalesced, CopiesTensorsOfAllSizesTypesAndLayouts) {
  std::vector<std::vector<std::int32_t>> values;
  for (const Place& place : {Place(0), Place::host()}) {
    std::vector<Given> given;
    const std::vector<Shape> shapes{{5}, {}, {3, 4}, {0}, {100}, {2, 3}, {7, 1}};
    for (const Shape& shape : shapes) {
      Shape strides = rows(shape);
      if (given.size() % 2 == 0)
        for (std::int64_t& stride : strides) stride *= 2;
      values.push_back(counted<std::int32_t>(offsets(shape, strides).size(), static_cast<int>(given.size()) * 1000));
      given.emplace_back(values.back(), shape, strides, place);
      given.emplace_back(counted<std::int8_t>(values.back().size()), shape, place);
    }
    const std::vector<TensorView> tensors(given.begin(), given.end());
    for (const std::size_t buffer :
         {std::size_t{1}, std::size_t{7}, std::size_t{16}, std::size_t{100}, kCoalescingBytes}) {
      const std::vector<std::vector<Tensor>> copies = broadcast_coalesced(tensors, {2, 0}, buffer);
      ASSERT_EQ(copies.size(), 2U);
      for (const std::vector<Tensor>& on_device : copies) {
        ASSERT_EQ(on_device.size(), tensors.size());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          EXPECT_EQ(on_device[i].view().shape, tensors[i].shape);
          EXPECT_EQ(on_device[i].view().dtype, tensors[i].dtype);
          if (tensors[i].dtype == DType::int32)
            EXPECT_EQ(values_of<std::int32_t>(on_device[i]), values_of<std::int32_t>(tensors[i])) << i;
          else
            EXPECT_EQ(values_of<std::int8_t>(on_device[i]), values_of<std::int8_t>(tensors[i])) << i;
        }
      }
      EXPECT_EQ(copies[1][3].view().place, Place(0));
    }
  }
}

TEST_F(BroadcastCoalesced, MakesNoMoreCopiesThanTheBytesFillBuffers) {
  std::vector<Given> given;
  for (int i = 0; i < 30; ++i) given.emplace_back(counted(25), Shape{25}, 0);  // 100 bytes each
  const std::vector<TensorView> tensors(given.begin(), given.end());
  EXPECT_EQ(copies_for(tensors, 1000), 3U);
  EXPECT_EQ(copies_for(tensors, 150), 20U);  // tensors are cut at the buffer's end
  EXPECT_EQ(copies_for(tensors, 99), 30U);   // each is larger, and travels alone
  EXPECT_EQ(copies_for(tensors, 3000), 1U);
  EXPECT_EQ(copies_for(tensors, kCoalescingBytes), 1U);
  given.emplace_back(counted<double>(5), Shape{5}, 0);
  given.emplace_back(counted(1000), Shape{1000}, 0);
  EXPECT_EQ(copies_for(std::vector<TensorView>(given.begin(), given.end()), 3000),
            3U);  // a type, and a large one, more
}

TEST_F(BroadcastCoalesced, NeedsNoMoreMemoryThanABuffer) {
  std::vector<Given> given;
  for (int i = 0; i < 64; ++i) given.emplace_back(std::vector<std::uint8_t>(1 << 14), Shape{1 << 14}, 0);
  reset_peak_memory_stats(0);
  const auto live = memory_allocated(0);
  static_cast<void>(broadcast_coalesced(std::vector<TensorView>(given.begin(), given.end()), {1, 2}, 4 << 14));
  EXPECT_LE(max_memory_allocated(0), live + (4 << 14));
  EXPECT_EQ(memory_allocated(0), live);
}

TEST_F(BroadcastCoalesced, HasABufferOfTenMebibytesByDefault) {
  std::vector<Tensor> given;
  for (int i = 0; i < 5; ++i) given.push_back(Tensor::empty({6 << 20}, DType::uint8, 0));
  const std::uint64_t before = copies_between_devices();
  const auto copies = broadcast_coalesced(std::vector<TensorView>(given.begin(), given.end()), {1, 2, 3});
  EXPECT_EQ(copies_between_devices() - before, 3U * 3U);  // 30 MiB in 10,485,760 bytes, to three devices
  EXPECT_EQ(kCoalescingBytes, 10485760U);
}

TEST_F(BroadcastCoalesced, ThatTravelledTogetherShareTheirMemory) {
  const Given first(counted(3), {3}, 0);
  const Given second(counted(2, 10), {2}, 0);
  std::vector<std::vector<Tensor>> copies = broadcast_coalesced({first, second}, {1});
  EXPECT_EQ(memory_stats(1).flat().at("allocation.all.current"), 1);
  copies[0][0] = Tensor();
  EXPECT_EQ(values_of<float>(copies[0][1]), (std::vector<float>{10, 11}));
  copies.clear();
  EXPECT_EQ(memory_allocated(1), 0U);
}

TEST_F(BroadcastCoalesced, RefusesTensorsOfSeveralPlaces) {
  const Given here(counted(3), {3}, 0);
  const Given there(counted(3), {3}, 1);
  const Given on_host(counted(3), {3}, Place::host());
  const auto refused = [](const std::vector<TensorView>& tensors, std::size_t buffer) {
    return error_of<InvalidArgument>([&] { static_cast<void>(broadcast_coalesced(tensors, {0}, buffer)); });
  };
  EXPECT_THAT(refused({here, there}, 100), HasSubstr("tensor 1 is on device 1, tensor 0 on device 0"));
  EXPECT_THAT(refused({here, on_host}, 100), HasSubstr("tensor 1 is on the host, tensor 0 on device 0"));
  const TensorView wide(here.view().data, DType::complex64, {std::int64_t{1} << 59 >> 1}, {0}, 0);
  EXPECT_THAT(refused(std::vector<TensorView>(8, wide), SIZE_MAX), HasSubstr("the address space"));
  EXPECT_THAT(refused({here}, 0), HasSubstr("0 bytes"));
  EXPECT_TRUE(broadcast_coalesced({}, {0}).front().empty());
  EXPECT_TRUE(broadcast_coalesced({here}, {}).empty());
}

}  // namespace
}  // namespace cistern::comm
