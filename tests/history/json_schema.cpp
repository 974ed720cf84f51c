#include "tests/history/json_schema.h"

#include <algorithm>
#include <functional>
#include <map>

namespace cistern {
namespace {

using nlohmann::json;

class Validator {
 public:
  explicit Validator(const json& root) : root_(root) {}
  std::vector<std::string> faults;

  void check(const json& schema, const json& value, const std::string& path) {
    using Rule = std::function<void(const json& argument)>;
    const auto fault = [&](const std::string& what) { faults.push_back(path + ": " + what); };
    const std::map<std::string, Rule> rules{
        {"$ref",
         [&](const json& name) {
           check(root_.at(json::json_pointer(name.get<std::string>().substr(1))), value, path);
         }},
        {"type",
         [&](const json& type) {
           if (!is_of(type, value)) fault("expected " + type.dump());
         }},
        {"const",
         [&](const json& expected) {
           if (value != expected) fault("expected " + expected.dump());
         }},
        {"enum",
         [&](const json& all) {
           if (std::find(all.begin(), all.end(), value) == all.end()) fault("expected one of " + all.dump());
         }},
        {"not",
         [&](const json& forbidden) {
           Validator other(root_);
           other.check(forbidden, value, path);
           if (other.faults.empty()) fault("must not match " + forbidden.dump());
         }},
        {"minimum",
         [&](const json& least) {
           if (value.is_number() && value < least) fault("too small");
         }},
        {"maximum",
         [&](const json& most) {
           if (value.is_number() && value > most) fault("too large");
         }},
        {"minItems",
         [&](const json& least) {
           if (value.is_array() && value.size() < least) fault("too few");
         }},
        {"maxItems",
         [&](const json& most) {
           if (value.is_array() && value.size() > most) fault("too many");
         }},
        {"items",
         [&](const json& item) {
           for (std::size_t i = 0; value.is_array() && i < value.size(); ++i)
             check(item, value[i], path + "/" + std::to_string(i));
         }},
        {"required",
         [&](const json& names) {
           for (const json& name : names)
             if (value.is_object() && !value.contains(name.get<std::string>())) fault("lacks " + name.dump());
         }},
        {"properties",
         [&](const json& properties) {
           for (const auto& [name, property] : properties.items())
             if (value.is_object() && value.contains(name)) check(property, value[name], path + "/" + name);
         }},
        {"additionalProperties",
         [&](const json& others) {
           if (!value.is_object()) return;
           for (const auto& [name, member] : value.items())
             if (!schema.contains("properties") || !schema["properties"].contains(name))
               check(others, member, path + "/" + name);
         }},
        {"propertyNames",
         [&](const json& names) {
           if (!value.is_object()) return;
           for (const auto& [name, member] : value.items()) check(names, name, path + "/" + name);
         }},
    };
    for (const auto& [keyword, argument] : schema.items()) {
      if (keyword == "$schema" || keyword == "$defs" || keyword == "title" || keyword == "description") continue;
      const auto rule = rules.find(keyword);
      if (rule == rules.end())
        fault("the validator does not know the keyword " + keyword);
      else
        rule->second(argument);
    }
  }

 private:
  static bool is_of(const json& type, const json& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return value.is_number_integer();
    return type == "number" && value.is_number();
  }

  const json& root_;
};

}  // namespace

std::vector<std::string> schema_faults(const json& schema, const json& value) {
  Validator validator(schema);
  validator.check(schema, value, "");
  return validator.faults;
}

}  // namespace cistern
