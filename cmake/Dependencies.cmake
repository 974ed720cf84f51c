# What cistern is built with. All but the CUDA Toolkit are Debian packages: ./dev installs them.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)

# Only the Toolkit's headers are used: the driver itself is loaded at run time. CMake's own
# FindCUDAToolkit is not: that of 3.25 stops with an error on CUDA 13, which has no nvToolsExt.
find_program(CISTERN_NVCC nvcc)
mark_as_advanced(CISTERN_NVCC)
if(CISTERN_NVCC)
  get_filename_component(CISTERN_NVCC_ROOT ${CISTERN_NVCC} REALPATH)
  get_filename_component(CISTERN_NVCC_ROOT ${CISTERN_NVCC_ROOT} DIRECTORY)
  get_filename_component(CISTERN_NVCC_ROOT ${CISTERN_NVCC_ROOT} DIRECTORY)
endif()
find_path(CISTERN_CUDA_INCLUDE cuda.h
  HINTS ${CUDAToolkit_ROOT} ENV CUDAToolkit_ROOT ENV CUDA_HOME ENV CUDA_PATH ${CISTERN_NVCC_ROOT}
  PATHS /usr/local/cuda /opt/cuda
  PATH_SUFFIXES include targets/x86_64-linux/include targets/sbsa-linux/include targets/aarch64-linux/include)
if(NOT CISTERN_CUDA_INCLUDE)
  message(FATAL_ERROR
    "cuda.h was not found: install the CUDA Toolkit (12 or later; its headers are enough) "
    "or set CUDA_HOME to where it is.")
endif()
# The Toolkit's include folders may be several: the file's own is the one that is compiled with.
find_file(CISTERN_CUDA_HEADER cuda.h PATHS ${CISTERN_CUDA_INCLUDE} NO_DEFAULT_PATH NO_CACHE)
if(CISTERN_CUDA_HEADER)
  file(STRINGS ${CISTERN_CUDA_HEADER} cuda_version_line REGEX "^#define CUDA_VERSION [0-9]+" LIMIT_COUNT 1)
endif()
if(NOT cuda_version_line MATCHES "CUDA_VERSION ([0-9]+)")
  message(FATAL_ERROR "no CUDA_VERSION was found in ${CISTERN_CUDA_INCLUDE}/cuda.h: is it the CUDA Toolkit's?")
elseif(CMAKE_MATCH_1 LESS 12000)
  message(FATAL_ERROR
    "${CISTERN_CUDA_HEADER} has CUDA_VERSION ${CMAKE_MATCH_1}: expected 12000 (CUDA Toolkit 12.0) or later. "
    "Set CUDA_HOME to a later Toolkit.")
endif()
add_library(cistern_cuda_headers INTERFACE)
target_include_directories(cistern_cuda_headers SYSTEM INTERFACE ${CISTERN_CUDA_INCLUDE})

if(CISTERN_BUILD_TOOLS OR CISTERN_BUILD_BENCH OR CISTERN_BUILD_TESTS)
  find_package(nlohmann_json 3 REQUIRED)
  find_package(CLI11 2 REQUIRED)
  find_package(ZLIB REQUIRED)
endif()
if(CISTERN_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()
if(CISTERN_BUILD_BENCH)
  find_package(benchmark REQUIRED)
endif()
