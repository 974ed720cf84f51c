#include "stats/stack_owner.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace cistern {
namespace {

constexpr std::string_view kOperator = "operator";
constexpr std::string_view kAnonymous = "(anonymous namespace)::";

bool is_part_of_name(char character) {
  return character == '_' || (character >= '0' && character <= '9') || (character >= 'a' && character <= 'z') ||
         (character >= 'A' && character <= 'Z');
}

// Where a name that began at `start` goes on behind an operator's sign, which looks like brackets.
std::size_t behind_operator(std::string_view name, std::size_t start) {
  const std::size_t at = start + kOperator.size();
  if (name.substr(at, 2) == "()") return at + 2;
  const std::size_t end = name.find('(', at);
  return end == std::string_view::npos ? name.size() : end;
}

// Where the parts of a demangled name are that no bracket encloses.
struct Outline {
  std::size_t begin = 0;            // behind the return type
  std::size_t end = 0;              // where the parameters begin
  std::vector<std::size_t> scopes;  // behind each "::"
};

Outline outline_of(std::string_view name) {
  Outline outline{0, name.size(), {}};
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char character = name[i];
    const bool begins_word = i == 0 || !is_part_of_name(name[i - 1]);
    if (depth == 0 && begins_word && name.substr(i, kOperator.size()) == kOperator &&
        !is_part_of_name(name.substr(i + kOperator.size(), 1).empty() ? ' ' : name[i + kOperator.size()])) {
      i = behind_operator(name, i) - 1;
    } else if (depth == 0 && character == '(') {
      outline.end = i;
      break;
    } else if (depth == 0 && character == ' ') {
      outline.begin = i + 1;
      outline.scopes.clear();
    } else if (depth == 0 && name.substr(i, 2) == "::") {
      outline.scopes.push_back(i + 2);
    } else if (character == '<' || character == '(' || character == '{' || character == '[') {
      ++depth;
    } else if (character == '>' || character == ')' || character == '}' || character == ']') {
      --depth;
    }
  }
  outline.end = std::max(outline.end, outline.begin);
  return outline;
}

std::string without_anonymous(std::string_view demangled) {
  std::string name(demangled);
  for (std::size_t at = name.find(kAnonymous); at != std::string::npos; at = name.find(kAnonymous, at))
    name.erase(at, kAnonymous.size());
  return name;
}

// As many of the scopes around it as fit; at least the last name.
std::string fitted_name(std::string_view demangled, std::size_t columns) {
  const std::string name = without_anonymous(demangled);
  const Outline outline = outline_of(name);
  std::size_t begin = outline.begin;
  for (const std::size_t scope : outline.scopes)
    if (outline.end - begin > columns) begin = scope;
  return name.substr(begin, outline.end - begin);
}

bool is_ours(const FrameInfo& frame) {
  const std::string name = name_alone(frame.name);
  return name.rfind("cistern::", 0) == 0 && frame.name.find(kAnonymous) == std::string::npos;
}

}  // namespace

std::string name_alone(std::string_view demangled) { return fitted_name(demangled, demangled.size()); }

StackOwner owner_of(const StackInfo& stack, std::size_t columns) {
  StackOwner owner;
  if (stack.empty()) return owner;
  auto place = std::find_if_not(stack.begin(), stack.end(), is_ours);
  if (place == stack.end()) place = stack.begin();
  const FrameInfo& frame = *place;
  owner.function = fitted_name(frame.name, columns);
  if (!frame.filename.empty())
    owner.place = fmt::format("{}:{}", frame.filename.substr(frame.filename.rfind('/') + 1), frame.line);
  for (++place; place != stack.end(); ++place) {
    if (!owner.callers.empty()) owner.callers += ", ";
    owner.callers += fitted_name((*place)->name, 0);
  }
  return owner;
}

}  // namespace cistern
