# Compile options that every target of ours shares. A warning ends our own builds; in a project
# that adds cistern, with a compiler that we may not know, it stays a warning.
add_library(cistern_warnings INTERFACE)
target_compile_options(cistern_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast -Wcast-align
  -Woverloaded-virtual -Wnull-dereference -Wformat=2 -Wimplicit-fallthrough)
# In the presets, for whoever works on this: other compilers and options warn of other things, and whoever
# only builds it must not fail for that. Nor a tree with a guard taken out.
option(CISTERN_WARNINGS_ARE_ERRORS "A warning ends the build" OFF)
if(CISTERN_WARNINGS_ARE_ERRORS)
  target_compile_options(cistern_warnings INTERFACE -Werror)
endif()
# gcc 12 sees null dereferences in what looks something up where that is compiled together. To be linked last: the last
# option counts.
add_library(cistern_no_null_warnings INTERFACE)
target_compile_options(cistern_no_null_warnings INTERFACE -Wno-null-dereference)
# Clang's -Wconversion is wider than gcc's, which in C++ leaves signs alone.
target_compile_options(cistern_warnings INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)
# Frames by pointer cost next to nothing and make profiles and stacks exact.
target_compile_options(cistern_warnings INTERFACE -fno-omit-frame-pointer)

if(CISTERN_SANITIZE)
  # gcc 12 warns of the standard library's own code when it instruments it.
  target_compile_options(cistern_warnings INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> -Wno-null-dereference)
  add_compile_options(-fsanitize=${CISTERN_SANITIZE} -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${CISTERN_SANITIZE})
  # clang's UBSan compares the types of functions too: those of libraries that are loaded by name have types of ours.
  if(CISTERN_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options(-fno-sanitize=function)
  endif()
  # gcc takes UBSan's data for globals to put red zones around: nine in ten of all, which quadruples them.
  if(CISTERN_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options("SHELL:--param asan-globals=0")
  endif()
endif()

# cistern_compile_fast_under_asan(TARGET): what takes longer to compile with AddressSanitizer's and UBSan's checks than its
# tests take to run: without optimisation it compiles in two fifths of the time.
function(cistern_compile_fast_under_asan target)
  if(CISTERN_SANITIZE MATCHES "address")
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()
