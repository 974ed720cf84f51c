#pragma once

// The policy that a snapshot was taken under, from what its allocator_settings say.
//
// Thread safety: functions of their arguments.

#include <cistern/options.h>
#include <cistern/snapshot.h>

#include <string>
#include <string_view>

namespace cistern {

struct RecordedPolicy {
  AllocatorOptions options;
  // Why the options' text could not be read, e.g. for a key of a later PyTorch; empty if it was. What only the
  // text tells then is as by default; the settings that a snapshot lists by themselves hold all the same.
  std::string unread_text;
};

// Throws InvalidArgument naming `name`, the file, for settings that no allocator has.
[[nodiscard]] RecordedPolicy recorded_policy(const AllocatorSettings& settings, std::string_view name);

}  // namespace cistern
