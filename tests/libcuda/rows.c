// Copies of rectangles and boxes.

#include "check.h"

enum { kWidth = 100, kHeight = 20, kDepth = 3 };

static unsigned char value_at(int x, int y, int z) { return (unsigned char)(x + 3 * y + 91 * z); }

// A rectangle out of the host's rows into pitched memory, and from there into the host's again, elsewhere.
void rows(void) {
  static unsigned char source[kHeight][kWidth], result[kHeight][2 * kWidth];
  CUdeviceptr pitched = 0;
  size_t pitch = 0;
  use_device(0);
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) source[y][x] = value_at(x, y, 0);
  OK(cuMemAllocPitch(&pitched, &pitch, kWidth, kHeight, 4));
  CHECK(pitch >= kWidth && pitch % 512 == 0);
  CUDA_MEMCPY2D in = {.srcXInBytes = 10,
                      .srcY = 5,
                      .srcMemoryType = CU_MEMORYTYPE_HOST,
                      .srcHost = source,
                      .srcPitch = kWidth,
                      .dstXInBytes = 2,
                      .dstY = 1,
                      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                      .dstDevice = pitched,
                      .dstPitch = pitch,
                      .WidthInBytes = 50,
                      .Height = 8};
  OK(cuMemcpy2D(&in));
  CUDA_MEMCPY2D out = {.srcXInBytes = 2,
                       .srcY = 1,
                       .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                       .srcDevice = pitched,
                       .srcPitch = pitch,
                       .dstXInBytes = 7,
                       .dstY = 4,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = result,
                       .dstPitch = 2 * kWidth,
                       .WidthInBytes = 50,
                       .Height = 8};
  OK(cuMemcpy2DUnaligned(&out));
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < 2 * kWidth; ++x) {
      const int is_in = x >= 7 && x < 57 && y >= 4 && y < 12;
      CHECK(result[y][x] == (is_in ? value_at(x - 7 + 10, y - 4 + 5, 0) : 0));
    }
  CUstream stream = NULL;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  memset(result, 0, sizeof result);
  OK(cuMemcpy2DAsync(&out, stream));
  OK(cuStreamSynchronize(stream));
  CHECK(result[4][7] == value_at(10, 5, 0) && result[11][56] == value_at(59, 12, 0));
  in.Height = 0;
  OK(cuMemcpy2D(&in));
}

void boxes(void) {
  static unsigned char source[kDepth][kHeight][kWidth], result[kDepth][kHeight][kWidth];
  use_device(0);
  const CUdeviceptr box = device_memory(sizeof source);
  for (int z = 0; z < kDepth; ++z)
    for (int y = 0; y < kHeight; ++y)
      for (int x = 0; x < kWidth; ++x) source[z][y][x] = value_at(x, y, z);
  OK(cuMemcpyHtoD(box, source, sizeof source));
  CUDA_MEMCPY3D copy = {.srcXInBytes = 1,
                        .srcY = 2,
                        .srcZ = 1,
                        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                        .srcDevice = box,
                        .srcPitch = kWidth,
                        .srcHeight = kHeight,
                        .dstXInBytes = 3,
                        .dstY = 4,
                        .dstMemoryType = CU_MEMORYTYPE_HOST,
                        .dstHost = result,
                        .dstPitch = kWidth,
                        .dstHeight = kHeight,
                        .WidthInBytes = 40,
                        .Height = 10,
                        .Depth = 2};
  OK(cuMemcpy3D(&copy));
  for (int z = 0; z < kDepth; ++z)
    for (int y = 0; y < kHeight; ++y)
      for (int x = 0; x < kWidth; ++x) {
        const int is_in = x >= 3 && x < 43 && y >= 4 && y < 14 && z < 2;
        CHECK(result[z][y][x] == (is_in ? value_at(x - 2, y - 2, z + 1) : 0));
      }
  memset(result, 0, sizeof result);
  OK(cuMemcpy3DAsync(&copy, NULL));
  OK(cuStreamSynchronize(NULL));
  CHECK(result[1][13][42] == value_at(40, 11, 2));
  copy.srcLOD = 1;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&copy));
  copy.srcLOD = 0;
  copy.srcHeight = 11;  // rows 2 to 11 are more
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&copy));
}

// A descriptor that is wrong somewhere copies nothing at all.
void row_errors(void) {
  static unsigned char source[kHeight][kWidth], result[kHeight * kWidth];
  use_device(0);
  const CUdeviceptr memory_here = device_memory(kHeight * kWidth);
  memset(source, 9, sizeof source);
  OK(cuMemsetD8(memory_here, 1, kHeight * kWidth));
  const CUDA_MEMCPY2D right = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                               .srcHost = source,
                               .srcPitch = kWidth,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = memory_here,
                               .dstPitch = kWidth,
                               .WidthInBytes = kWidth,
                               .Height = kHeight};
  CUDA_MEMCPY2D wrong = right;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(NULL));
  wrong.dstPitch = kWidth - 1;  // rows would overlap
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&wrong));
  wrong.dstPitch = (size_t)1 << 31;  // beyond CU_DEVICE_ATTRIBUTE_MAX_PITCH
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&wrong));
  wrong = right;
  wrong.Height = (size_t)1 << 40;  // the last rows are nobody's
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&wrong));
  wrong = right;
  wrong.dstY = ~(size_t)0;  // an address beyond the last
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&wrong));
  wrong = right;
  wrong.dstDevice = (CUdeviceptr)(size_t)result;  // host memory is no device's
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&wrong));
  wrong = right;
  wrong.srcHost = (const void*)(size_t)memory_here;  // and the other way round
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&wrong));
  wrong = right;
  wrong.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemcpy2D(&wrong));
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpy2DAsync(&right, (CUstream)source));
  OK(cuMemcpyDtoH(result, memory_here, kHeight * kWidth));
  for (int i = 0; i < kHeight * kWidth; ++i) CHECK(result[i] == 1);
}

// One call is one node of a graph, which copies at each launch what is there then.
void captured_rows(void) {
  unsigned char(*source)[kWidth] = NULL;
  static unsigned char result[kHeight][kWidth];
  CUstream stream = NULL;
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  size_t nodes = 0;
  use_device(0);
  const CUdeviceptr memory_here = device_memory(kHeight * kWidth);
  OK(cuMemsetD8(memory_here, 0, kHeight * kWidth));
  OK(cuCtxSynchronize());  // the stream that captures does not wait for the default one
  OK(cuMemAllocHost((void**)&source, kHeight * kWidth));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUDA_MEMCPY2D half = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                              .srcHost = source,
                              .srcPitch = kWidth,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = memory_here,
                              .dstPitch = kWidth,
                              .WidthInBytes = kWidth / 2,
                              .Height = kHeight};
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuMemcpy2DAsync(&half, stream));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphGetNodes(graph, NULL, &nodes));
  CHECK(nodes == 1);
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  memset(source, 5, kHeight * kWidth);
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH(result, memory_here, sizeof result));
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) CHECK(result[y][x] == (x < kWidth / 2 ? 5 : 0));
}
