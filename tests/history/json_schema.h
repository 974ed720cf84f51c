#pragma once

// A validator for the keywords of JSON Schema that docs/snapshot-schema.json uses.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cistern {

// Where `value` breaks `schema`: "/segments/0/address: ..."; empty if nowhere. A keyword that the
// validator does not know is a fault, too.
[[nodiscard]] std::vector<std::string> schema_faults(const nlohmann::json& schema, const nlohmann::json& value);

}  // namespace cistern
