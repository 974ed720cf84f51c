#pragma once

// The options' text as PyTorch writes it, split into keys and values; what they mean is
// options_keys' concern.
//
//   config := [ pair { "," pair } [ "," ] ]     pair := key ":" value
//   value  := word | list                       list := "[" item { "," item } "]"
//   item   := word ":" word
//
// A word is one or more characters other than , : [ ] and white space, which is dropped
// wherever it stands.

#include <string>
#include <string_view>
#include <vector>

namespace cistern {

struct OptionItem {
  std::string name;
  std::string value;
};

struct OptionPair {
  std::string key;
  std::string value;              // as written, white space dropped; of a list with its brackets
  std::vector<OptionItem> items;  // of a list
  bool is_list = false;
};

// The pairs of `text`, in order; a key may come more than once.
// Throws InvalidArgument that names the key, what stands there and what was expected.
[[nodiscard]] std::vector<OptionPair> parse_option_pairs(std::string_view text);

}  // namespace cistern
