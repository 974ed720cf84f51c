// Tensors, views of them, and DLPack.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include <cstddef>
#include <optional>

#include "tests/comm/comm_case.h"

namespace cistern::comm {
namespace {

using ::testing::HasSubstr;

class Tensors : public CommCase {};

TEST_F(Tensors, AreBlocksOfTheAllocatorThatGoWithTheLastOwner) {
  Tensor tensor = Tensor::empty({3, 4}, DType::float64, 1);
  EXPECT_EQ(tensor.view().place, Place(1));
  EXPECT_EQ(tensor.view().strides, (Shape{4, 1}));
  EXPECT_EQ(tensor.view().bytes(), 96U);
  EXPECT_EQ(memory_allocated(1), 512U);
  const std::shared_ptr<void> owner = tensor.owner();
  Tensor moved = std::move(tensor);
  EXPECT_EQ(tensor.data(), nullptr);  // NOLINT(bugprone-use-after-move): it is empty
  EXPECT_EQ(tensor.view().dimensions(), 0U);
  moved = Tensor();
  EXPECT_EQ(memory_allocated(1), 512U);
  static_cast<void>(Tensor(TensorView(), owner));
  EXPECT_EQ(memory_allocated(1), 512U);
  EXPECT_EQ(Tensor::empty({2}, DType::int8, "cuda").view().place, Place(0));
  EXPECT_EQ(Tensor::empty({2}, DType::int8, Place::host()).view().place, Place::host());
  EXPECT_EQ(Tensor::empty({0, 2}, DType::int8).data(), nullptr);
  const Stream stream = Stream::create({.device = 1});
  EXPECT_THROW(static_cast<void>(Tensor::empty({2}, DType::int8, 0, stream)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(Tensor::empty({-2}, DType::int8)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(Tensor::empty({2}, DType::int8, 4)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(Tensor::empty({std::int64_t{1} << 62, 8}, DType::int8)), InvalidArgument);
}

TEST_F(Tensors, AreViewedInParts) {
  const Given given(counted(24), {2, 3, 4}, Place::host());
  EXPECT_EQ(values_of<float>(given.view().narrow(1, 1, 2)), part(counted(24), {2, 3, 4}, 1, 1, 2));
  EXPECT_EQ(values_of<float>(given.view().narrow(-1, 3, 1).transpose(0, 1)),
            (std::vector<float>{4, 16, 8, 20, 12, 24}));
  EXPECT_FALSE(given.view().narrow(1, 1, 2).is_contiguous());
  EXPECT_TRUE(given.view().narrow(0, 1, 1).is_contiguous());
  EXPECT_TRUE(given.view().narrow(2, 4, 0).is_contiguous());
  EXPECT_THROW(static_cast<void>(given.view().narrow(1, 2, 2)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(given.view().narrow(1, -1, 2)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(given.view().narrow(3, 0, 1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(given.view().transpose(0, 3)), InvalidArgument);
}

TEST_F(Tensors, AreSomewhere) {
  EXPECT_EQ(Place("cpu"), Place::host());
  EXPECT_EQ(Place("cuda:2"), Place(2));
  EXPECT_EQ(Place().device(), Device());
  EXPECT_NE(Place(0), Place::host());
  EXPECT_THROW(Place("gpu"), InvalidArgument);
  EXPECT_THROW(Place(static_cast<const char*>(nullptr)), InvalidArgument);
}

// As dlpack.h of DLPack has it.
TEST_F(Tensors, AreLaidOutAsDlpackHasThem) {
  using namespace dlpack;
  EXPECT_EQ(sizeof(DLDevice), 8U);
  EXPECT_EQ(sizeof(DLDataType), 4U);
  EXPECT_EQ(sizeof(DLTensor), 48U);
  EXPECT_EQ(offsetof(DLTensor, device), 8U);
  EXPECT_EQ(offsetof(DLTensor, ndim), 16U);
  EXPECT_EQ(offsetof(DLTensor, dtype), 20U);
  EXPECT_EQ(offsetof(DLTensor, shape), 24U);
  EXPECT_EQ(offsetof(DLTensor, strides), 32U);
  EXPECT_EQ(offsetof(DLTensor, byte_offset), 40U);
  EXPECT_EQ(offsetof(DLManagedTensor, manager_ctx), 48U);
  EXPECT_EQ(offsetof(DLManagedTensor, deleter), 56U);
}

TEST_F(Tensors, TravelToDlpackAndBack) {
  for (int t = 0; t <= static_cast<int>(DType::complex128); ++t) {
    const auto type = static_cast<DType>(t);
    Tensor tensor = Tensor::empty({2, 3}, type, 1);
    void* const data = tensor.data();
    dlpack::DLManagedTensor* const managed = to_dlpack(std::move(tensor));
    EXPECT_EQ(managed->dl_tensor.device.device_type, dlpack::kCUDA);
    EXPECT_EQ(managed->dl_tensor.device.device_id, 1);
    EXPECT_EQ(managed->dl_tensor.dtype.bits, 8 * size_of(type));
    EXPECT_EQ(managed->dl_tensor.dtype.lanes, 1);
    EXPECT_EQ(memory_stats(1).flat().at("allocation.all.current"), 1);
    {
      const Tensor back = from_dlpack(managed);
      EXPECT_EQ(back.view().dtype, type);
      EXPECT_EQ(back.data(), data);
      EXPECT_EQ(back.view().shape, (Shape{2, 3}));
      EXPECT_EQ(back.view().place, Place(1));
    }
    EXPECT_EQ(memory_stats(1).flat().at("allocation.all.current"), 0);
  }
}

TEST_F(Tensors, ComeFromDlpackWithOffsetsAndWithoutStrides) {
  const Given given(counted(12), {12}, 2);
  std::int64_t shape[] = {2, 3};
  std::int64_t strides[] = {6, 2};
  dlpack::DLTensor foreign{given.view().data, {dlpack::kCUDA, 2}, 2, {dlpack::kFloat, 32, 1}, shape, nullptr, 8};
  EXPECT_EQ(values_of<float>(broadcast(from_dlpack(foreign), {0}).front()), counted(6, 3));
  foreign.strides = strides;
  foreign.byte_offset = 0;
  EXPECT_EQ(values_of<float>(broadcast(from_dlpack(foreign), {0}).front()), (std::vector<float>{1, 3, 5, 7, 9, 11}));
  TensorView view = given.view().narrow(0, 2, 5);
  const dlpack::DLTensor ours = to_dlpack(view);
  EXPECT_EQ(ours.byte_offset, 0U);
  EXPECT_EQ(ours.data, static_cast<float*>(given.view().data) + 2);
  EXPECT_EQ(ours.shape[0], 5);
  Given on_host(counted(2), {2}, Place::host());
  TensorView host_view = on_host;
  EXPECT_EQ(to_dlpack(host_view).device.device_type, dlpack::kCPU);
  foreign.device = {dlpack::kCUDAHost, 0};
  EXPECT_EQ(from_dlpack(foreign).place, Place::host());
}

TEST_F(Tensors, ThatAreNoneOfOursAreRefusedByName) {
  std::int64_t shape[] = {2};
  std::int64_t backwards[] = {-1};
  const dlpack::DLTensor good{nullptr, {dlpack::kCPU, 0}, 1, {dlpack::kFloat, 32, 1}, shape, nullptr, 0};
  const auto refused = [&](auto change) {
    dlpack::DLTensor tensor = good;
    change(tensor);
    return error_of<InvalidArgument>([&] { static_cast<void>(from_dlpack(tensor)); });
  };
  EXPECT_EQ(refused([](dlpack::DLTensor&) {}), "");
  EXPECT_THAT(refused([](auto& tensor) { tensor.dtype.lanes = 4; }), HasSubstr("4 lanes"));
  EXPECT_THAT(refused([](auto& tensor) { tensor.dtype.bits = 8; }), HasSubstr("8 bits"));
  EXPECT_THAT(refused([](auto& tensor) { tensor.dtype.code = 3; }), HasSubstr("code 3"));
  EXPECT_THAT(refused([](auto& tensor) { tensor.device = {7, 1}; }), HasSubstr("device 1 of type 7"));
  EXPECT_THAT(refused([](auto& tensor) { tensor.device = {dlpack::kCUDA, -2}; }), HasSubstr("device -2"));
  EXPECT_THAT(refused([](auto& tensor) { tensor.ndim = -1; }), HasSubstr("-1 dimensions"));
  EXPECT_THAT(refused([](auto& tensor) { tensor.shape = nullptr; }), HasSubstr("expected their sizes"));
  EXPECT_THAT(refused([&](auto& tensor) { tensor.strides = backwards; }), HasSubstr("none below 0"));
  // A tensor that is refused is still the caller's; one without a deleter is nobody's to delete.
  int deleted = 0;
  dlpack::DLManagedTensor managed{good, &deleted, [](auto* self) { ++*static_cast<int*>(self->manager_ctx); }};
  managed.dl_tensor.dtype.lanes = 2;
  EXPECT_THROW(static_cast<void>(from_dlpack(&managed)), InvalidArgument);
  EXPECT_EQ(deleted, 0);
  managed.dl_tensor.dtype.lanes = 1;
  static_cast<void>(from_dlpack(&managed));
  EXPECT_EQ(deleted, 1);
  managed.deleter = nullptr;
  static_cast<void>(from_dlpack(&managed));
  EXPECT_THROW(static_cast<void>(from_dlpack(static_cast<dlpack::DLManagedTensor*>(nullptr))), InvalidArgument);
}

}  // namespace
}  // namespace cistern::comm
