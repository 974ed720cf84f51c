#include "tools/recorded_policy.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <bit>

#include "allocator/options_keys.h"
#include "tools/input_file.h"

namespace cistern {
namespace {

[[noreturn]] void fail(std::string_view name, std::string_view key, std::int64_t value, std::string_view expected) {
  fail_input(name, fmt::format("allocator_settings.{}: {}", key, value), expected);
}

// The one of `choices` that is called as the file says.
template <class Choice>
Choice choice_of(std::string_view name, std::string_view key, std::string_view value,
                 std::initializer_list<Choice> choices) {
  for (const Choice choice : choices)
    if (value == to_string(choice)) return choice;
  fail_input(name, fmt::format("allocator_settings.{}: {}", key, value), "a value of that option");
}

std::size_t limit_of(std::int64_t recorded) { return recorded < 0 ? kUnlimited : static_cast<std::size_t>(recorded); }

// What our snapshots tell of the policy; PyTorch's tell whether segments expand, and in their text which policy is
// used where they do not.
void read_policy(const AllocatorSettings& settings, std::string_view name, AllocatorOptions& options) {
  if (!settings.policy.empty())
    options.policy = choice_of(name, "policy", settings.policy,
                               {Policy::classic, Policy::expandable, Policy::paged, Policy::async, Policy::direct});
  else if (settings.expandable_segments)
    options.policy = Policy::expandable;
  else if (options.policy == Policy::expandable)
    options.policy = Policy::classic;
  if (!settings.pytorch_rules.empty())
    options.pytorch_rules =
        choice_of(name, "pytorch_rules", settings.pytorch_rules, {PytorchRules::current, PytorchRules::v2_4});
  if (settings.max_non_split_rounding)
    options.max_non_split_rounding_bytes = limit_of(*settings.max_non_split_rounding);
}

void read_divisions(const AllocatorSettings& settings, std::string_view name, AllocatorOptions& options) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  for (const auto& [mebibytes, divisions] : settings.roundup_power2_divisions) {
    const auto unsigned_mebibytes = static_cast<std::uint64_t>(mebibytes);
    const auto bucket = static_cast<std::size_t>(std::countr_zero(unsigned_mebibytes));
    if (!std::has_single_bit(unsigned_mebibytes) || bucket >= options.roundup_power2_divisions.size())
      fail(name, "roundup_power2_divisions", mebibytes, "a power of two up to 32768");
    if (divisions > kMost || (divisions != 0 && !std::has_single_bit(static_cast<std::uint64_t>(divisions))))
      fail(name, "roundup_power2_divisions", divisions, "0 or a power of two up to 2^31");
    options.roundup_power2_divisions[bucket] = static_cast<std::uint32_t>(divisions);
  }
}

}  // namespace

RecordedPolicy recorded_policy(const AllocatorSettings& settings, std::string_view name) {
  RecordedPolicy policy;
  policy.options.policy = Policy::classic;  // PyTorch's text does not name it
  try {
    policy.options = AllocatorOptions::parse(settings.text, policy.options);
  } catch (const InvalidArgument& error) {
    policy.unread_text = error.what();
  }
  AllocatorOptions& options = policy.options;
  read_policy(settings, name, options);
  options.max_split_size_bytes = limit_of(settings.max_split_size);
  read_divisions(settings, name, options);
  return policy;
}

}  // namespace cistern
