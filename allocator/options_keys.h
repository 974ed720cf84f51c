#pragma once

// What each option key means: its type, its range and the option that it sets.

#include <cistern/options.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/options_grammar.h"

namespace cistern {

// A year.
inline constexpr std::uint64_t kLongestDecayMs = std::uint64_t{366} * 24 * 3600 * 1000;

// Options while their text is read. Some keys can be judged only by what others say, so
// they wait here until all are read.
struct OptionsReading {
  AllocatorOptions options;
  std::optional<Policy> policy;
  std::optional<bool> expandable_segments;
  std::optional<bool> backend_is_async;
  // By key: the reason why it changes nothing.
  std::map<std::string, std::string, std::less<>> without_effect;
};

// Applies one pair; a later pair of the same key replaces what an earlier one did.
// Throws InvalidArgument naming the key, the value and what was expected.
void apply_option(const OptionPair& pair, OptionsReading& reading);

// The rules that the pairs are read by. They hold for the whole text, wherever it names them.
[[nodiscard]] PytorchRules rules_of(const std::vector<OptionPair>& pairs, PytorchRules otherwise);

[[nodiscard]] std::string_view to_string(PytorchRules rules) noexcept;
[[nodiscard]] std::string_view to_string(HistoryEnabled enabled) noexcept;
[[nodiscard]] std::string_view to_string(HistoryContext context) noexcept;

// For options that were not read from text. Throws InvalidArgument naming the first field out
// of range and what was expected.
void require_valid(const AllocatorOptions& options);

}  // namespace cistern
