# Headers that most files of a target read are compiled once for it: half of the time that a small file takes. Not
# where a header that a file forgot to include is to be noticed: the dev build does without.
option(CISTERN_PRECOMPILE "Compile common headers once for each target" OFF)

set(CISTERN_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <cstdint> <functional> <map> <memory> <mutex> <optional>
  <span> <sstream> <string> <string_view> <thread> <unordered_map> <vector> <fmt/format.h>)

# cistern_precompile(TARGET HEADER...): the common ones and these, for a target of enough files to gain by it.
function(cistern_precompile target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cpp$")
  list(LENGTH sources count)
  if(CISTERN_PRECOMPILE AND count GREATER 4)
    target_precompile_headers(${target} PRIVATE ${CISTERN_COMMON_HEADERS} ${ARGN})
  endif()
endfunction()
