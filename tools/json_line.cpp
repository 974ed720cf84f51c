#include "tools/json_line.h"

#include <ostream>

namespace cistern {

void print_json_line(std::ostream& out, const nlohmann::ordered_json& object) {
  constexpr int kOneLine = -1;
  out << object.dump(kOneLine, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace cistern
