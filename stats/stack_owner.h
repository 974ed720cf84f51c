#pragma once

// Who a stack is, in a few words: for reports that name the owners of memory.

#include <cistern/snapshot.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace cistern {

struct StackOwner {
  std::string function;  // innermost call that is none of ours, without return type and parameters
  std::string place;     // "train.cpp:42"; "" where it is not known
  std::string callers;   // "step, train, main": last names alone
};

// Of the first frames of `stack` those of cistern are passed over, unless there are no others.
// `columns`: what `function` may take; namespaces and classes are dropped first.
[[nodiscard]] StackOwner owner_of(const StackInfo& stack, std::size_t columns);

// "train::Step::forward<float>" of "void train::Step::forward<float>(Batch const&) const".
[[nodiscard]] std::string name_alone(std::string_view demangled);

}  // namespace cistern
