# What cistern is built with. All but the CUDA Toolkit are Debian packages: ./dev installs them.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)

# Only the Toolkit's headers are used: the driver itself is loaded at run time.
find_package(CUDAToolkit QUIET)
if(CUDAToolkit_FOUND)
  set(CISTERN_CUDA_INCLUDE ${CUDAToolkit_INCLUDE_DIRS})
else()
  find_path(CISTERN_CUDA_INCLUDE cuda.h
    HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include targets/x86_64-linux/include)
endif()
if(NOT CISTERN_CUDA_INCLUDE)
  message(FATAL_ERROR
    "cuda.h was not found: install the CUDA Toolkit (12 or later; its headers are enough) "
    "or set CUDA_HOME to where it is.")
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
