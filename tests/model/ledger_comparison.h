#pragma once

// Scopes, tags and streams of an allocator against the specification's, after every step.

#include <cistern/allocator.h>
#include <cistern/scope.h>
#include <cistern/stats.h>

#include <map>
#include <string>
#include <vector>

#include "reference_allocator.h"
#include "reference_ledger.h"

namespace cistern::model {

// Fails the property with `what` and the key of the first figure that differs.
void require_equal(const std::string& what, const MemoryStats& expected, const MemoryStats& actual);

class LedgerComparison {
 public:
  // What it refers to must outlive it. Stream number i of the model is streams[i].
  LedgerComparison(CachingAllocator& allocator, ReferenceAllocator& model, const std::vector<StreamHandle>& streams)
      : allocator_(allocator), model_(model), streams_(streams), before_(model.stats()) {}

  void open_scope();
  void close_scope(std::size_t pick);
  // After the model's own.
  void reset(bool peaks);
  // After each step: what changed is counted.
  void follow();
  // Fails the property where anything differs.
  void compare() const;
  // The same of what is live and pending alone: where free memory lies is another policy's.
  void compare_live() const;

  static constexpr int kTags = 4;  // 0: no tag
  static Tag tag(int number);

 private:
  void compare_scopes() const;
  void compare_tags() const;
  enum class Bytes { all, live };
  void compare_streams(Bytes which) const;
  void compare_oldest() const;
  void compare_free() const;

  CachingAllocator& allocator_;
  ReferenceAllocator& model_;
  const std::vector<StreamHandle>& streams_;
  ReferenceLedger ledger_;
  MemoryStats before_;
  std::map<int, PeakScope> scopes_;
  int last_scope_ = 0;
};

}  // namespace cistern::model
