// Tag and TagScope: the stack of tags that each thread has.

#include <cistern/scope.h>

#include "stats/tags.h"

namespace cistern {
namespace {

constinit thread_local TagScope* innermost = nullptr;

}  // namespace

Tag::Tag(std::string_view name) : id_(tag_registry().intern(name)) {}
const std::string& Tag::name() const { return tag_registry().name(id_); }

Tag Tag::current() noexcept {
  Tag tag;
  tag.id_ = current_tag();
  return tag;
}

TagScope::TagScope(Tag tag) noexcept : tag_(tag), outer_(innermost) {
  if (outer_ != nullptr) outer_->inner_ = this;
  innermost = this;
  current_tag_of_thread = tag_.id();
}

// A scope that is not the innermost only leaves the stack.
TagScope::~TagScope() {
  if (outer_ != nullptr) outer_->inner_ = inner_;
  if (inner_ != nullptr) {
    inner_->outer_ = outer_;
    return;
  }
  innermost = outer_;
  current_tag_of_thread = outer_ == nullptr ? kUntagged : outer_->tag_.id();
}

}  // namespace cistern
