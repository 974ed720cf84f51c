# cistern_precompile(TARGET HEADER...): what most of a target's C++ files read is read once.
# cistern_precompile(TARGET REUSE_FROM OTHER): what OTHER has read, which is compiled with the same options.
# Not where CMAKE_CXX_COMPILER_LAUNCHER is ccache, which knows a file by what it includes itself: there all files are compiled
# without, and so seen to include what they use.
function(cistern_precompile target)
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
    return()
  endif()
  if("${ARGV1}" STREQUAL "REUSE_FROM")
    target_precompile_headers(${target} REUSE_FROM ${ARGV2})
    return()
  endif()
  foreach(header IN LISTS ARGN)
    target_precompile_headers(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${header}>")
  endforeach()
endfunction()

# cistern_compile_together(TARGET): several of its files at a time, what they share being compiled once. It halves a
# build of everything, and makes one of a single change longer: with ccache, which is for that, each file is alone, and
# so it is within another project, which has its own ways.
function(cistern_compile_together target)
  if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    # gcc looks for what it no longer needs from 128 MiB on, which takes up to a tenth of its time and frees a sixth.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE "SHELL:--param ggc-min-heapsize=1048576")
    endif()
  endif()
endfunction()
