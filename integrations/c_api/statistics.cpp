#include <cistern/history.h>
#include <cistern/scope.h>
#include <cistern/snapshot.h>
#include <cistern/stats.h>

#include <memory>
#include <ostream>
#include <streambuf>
#include <string>

#include "integrations/c_api/cancelled.h"
#include "integrations/c_api/stat.h"
#include "integrations/c_api/status.h"
#include "integrations/c_api/versioned.h"

using cistern::c_api::guarded;
using cistern::c_api::read_struct;
using cistern::c_api::require;
using cistern::c_api::require_given;
using cistern::c_api::require_struct;
using cistern::c_api::stat_of;
using cistern::c_api::write_struct;

struct cistern_peak_scope {
  cistern::PeakScope scope;
};
struct cistern_tag_scope {
  explicit cistern_tag_scope(cistern::Tag tag) : scope(tag) {}
  cistern::TagScope scope;
};
struct cistern_budget {
  cistern::Budget budget;
};

namespace {

cistern_memory_stats stats_of(const cistern::MemoryStats& stats) {
  return {sizeof(cistern_memory_stats),
          stat_of(stats.allocation),
          stat_of(stats.segment),
          stat_of(stats.active),
          stat_of(stats.inactive_split),
          stat_of(stats.allocated_bytes),
          stat_of(stats.reserved_bytes),
          stat_of(stats.active_bytes),
          stat_of(stats.inactive_split_bytes),
          stat_of(stats.requested_bytes),
          stat_of(stats.oversize_allocations),
          stat_of(stats.oversize_segments),
          stats.num_alloc_retries,
          stats.num_ooms,
          stats.num_sync_all_streams,
          stats.num_device_alloc,
          stats.num_device_free,
          stats.max_split_size};
}

template <class Read>
cistern_status read_bytes(size_t* bytes, Read&& read) {
  return guarded([&] {
    require(bytes, "bytes");
    *bytes = read();
  });
}

// Hands what is written to a function of C, a piece at a time.
class WriterBuffer final : public std::streambuf {
 public:
  WriterBuffer(cistern_snapshot_writer writer, void* user_data) : writer_(writer), user_data_(user_data) {
    setp(buffer_, buffer_ + sizeof buffer_);
  }
  [[nodiscard]] bool is_cancelled() const noexcept { return is_cancelled_; }

 private:
  int overflow(int next) override {
    if (sync() != 0) return traits_type::eof();
    if (next == traits_type::eof()) return traits_type::not_eof(next);
    return sputc(traits_type::to_char_type(next));
  }
  int sync() override {
    const auto count = static_cast<std::size_t>(pptr() - pbase());
    if (is_cancelled_ || (count != 0 && writer_(buffer_, count, user_data_) != 0)) {
      is_cancelled_ = true;
      return -1;
    }
    setp(buffer_, buffer_ + sizeof buffer_);
    return 0;
  }

  cistern_snapshot_writer writer_;
  void* user_data_;
  bool is_cancelled_ = false;
  char buffer_[65536];
};

[[noreturn]] void refuse_format(int format) {
  throw cistern::InvalidArgument("snapshot format " + std::to_string(format) + ": expected one of CISTERN_SNAPSHOT_*");
}

// `where`: a path or a stream.
template <class Where>
void write_snapshot(Where&& where, int format) {
  switch (format) {
    case CISTERN_SNAPSHOT_JSON:
      cistern::write_json(cistern::memory_snapshot(), where);
      return;
    case CISTERN_SNAPSHOT_PICKLE:
      cistern::write_pickle(cistern::memory_snapshot(), where);
      return;
    case CISTERN_SNAPSHOT_TORCH_JSON:
      cistern::write_torch_json(cistern::memory_snapshot(), where);
      return;
    default:
      refuse_format(format);
  }
}

// `value` as one of an enumeration's of which `last` is the last.
template <class Enumeration>
Enumeration member_of(int value, Enumeration last, const char* name) {
  if (value < 0 || value > static_cast<int>(last))
    throw cistern::InvalidArgument(std::string(name) + " " + std::to_string(value) + ": expected 0 to " +
                                   std::to_string(static_cast<int>(last)));
  return static_cast<Enumeration>(value);
}

}  // namespace

cistern_status cistern_get_memory_stats(int device, cistern_memory_stats* stats) {
  return guarded([&] {
    require_struct(stats, "stats");
    write_struct(stats, stats_of(cistern::memory_stats(device)));
  });
}
cistern_status cistern_memory_allocated(int device, size_t* bytes) {
  return read_bytes(bytes, [&] { return cistern::memory_allocated(device); });
}
cistern_status cistern_max_memory_allocated(int device, size_t* bytes) {
  return read_bytes(bytes, [&] { return cistern::max_memory_allocated(device); });
}
cistern_status cistern_memory_reserved(int device, size_t* bytes) {
  return read_bytes(bytes, [&] { return cistern::memory_reserved(device); });
}
cistern_status cistern_max_memory_reserved(int device, size_t* bytes) {
  return read_bytes(bytes, [&] { return cistern::max_memory_reserved(device); });
}
cistern_status cistern_reset_peak_memory_stats(int device) {
  return guarded([&] { cistern::reset_peak_memory_stats(device); });
}
cistern_status cistern_reset_accumulated_memory_stats(int device) {
  return guarded([&] { cistern::reset_accumulated_memory_stats(device); });
}
cistern_status cistern_memory_summary(int device, int abbreviated, char* text, size_t bytes, size_t* needed) {
  return guarded([&] {
    cistern::c_api::require_room(text, bytes, needed);
    cistern::c_api::write_text(cistern::memory_summary(device, abbreviated != 0), text, bytes, needed);
  });
}
cistern_status cistern_memory_report(int device, char* text, size_t bytes, size_t* needed) {
  return guarded([&] {
    cistern::c_api::require_room(text, bytes, needed);
    cistern::c_api::write_text(cistern::memory_report(device), text, bytes, needed);
  });
}

cistern_status cistern_peak_scope_create(int device, cistern_peak_scope** scope) {
  return guarded([&] {
    require(scope, "scope");
    *scope = new cistern_peak_scope{cistern::PeakScope(device)};
  });
}
void cistern_peak_scope_destroy(cistern_peak_scope* scope) { delete scope; }
void cistern_peak_scope_stop(cistern_peak_scope* scope) {
  if (scope != nullptr) scope->scope.stop();
}
cistern_status cistern_peak_scope_stats(const cistern_peak_scope* scope, cistern_memory_stats* stats) {
  return guarded([&] {
    require_given(scope, "scope");
    require_struct(stats, "stats");
    write_struct(stats, stats_of(scope->scope.stats()));
  });
}

cistern_status cistern_tag_scope_begin(const char* name, cistern_tag_scope** scope) {
  return guarded([&] {
    require(scope, "scope");
    *scope = new cistern_tag_scope(name == nullptr ? cistern::Tag() : cistern::Tag(name));
  });
}
void cistern_tag_scope_end(cistern_tag_scope* scope) { delete scope; }
cistern_status cistern_get_tag_stats(int device, const char* name, cistern_tag_stats* stats) {
  return guarded([&] {
    require_struct(stats, "stats");
    cistern_tag_stats found{};
    for (const cistern::TagStats& tag : cistern::tag_stats(device))
      if (tag.tag == (name == nullptr ? "" : name))
        found = {0, stat_of(tag.allocation), stat_of(tag.allocated_bytes), tag.at_device_peak_bytes};
    write_struct(stats, found);
  });
}

cistern_status cistern_budget_create(const cistern_budget_options* options, cistern_budget** budget) {
  return guarded([&] {
    require_given(options, "options");
    require(budget, "budget");
    const cistern_budget_options read = read_struct(options, "options");
    cistern::BudgetOptions made;
    made.device = cistern::Device(read.device);
    if (read.tag != nullptr) made.tag = read.tag;
    if (read.soft_bytes != 0) made.soft_bytes = read.soft_bytes;
    if (read.hard_bytes != 0) made.hard_bytes = read.hard_bytes;
    if (read.on_soft != nullptr)
      made.on_soft = [call = read.on_soft, user_data = read.user_data](const cistern::BudgetCrossing& crossing) {
        call(crossing.tag.c_str(), crossing.device, crossing.live_bytes, user_data);
      };
    *budget = new cistern_budget{cistern::Budget(made)};
  });
}
void cistern_budget_destroy(cistern_budget* budget) { delete budget; }

cistern_status cistern_record_history(const cistern_history_options* options) {
  return guarded([&] {
    require_given(options, "options");
    const cistern_history_options read = read_struct(options, "options");
    cistern::HistoryOptions made;
    made.enabled = member_of(read.enabled, cistern::HistoryEnabled::all, "enabled");
    made.context = member_of(read.context, cistern::HistoryContext::all, "context");
    if (read.max_entries != 0) made.max_entries = read.max_entries;
    if (read.max_frames != 0) made.max_frames = read.max_frames;
    if (read.max_stack_bytes != 0) made.max_stack_bytes = read.max_stack_bytes;
    made.clear_history = read.clear_history != 0;
    cistern::record_history(made);
  });
}
cistern_status cistern_set_user_metadata(const char* text) {
  return guarded([&] { cistern::set_user_metadata(text == nullptr ? "" : text); });
}
cistern_status cistern_annotate(void* pointer, const char* text) {
  return guarded([&] { cistern::annotate(pointer, text == nullptr ? "" : text); });
}

cistern_status cistern_write_snapshot(const char* path, int format) {
  return guarded([&] {
    require_given(path, "path");
    write_snapshot(std::string(path), format);
  });
}
cistern_status cistern_send_snapshot(cistern_snapshot_writer writer, void* user_data, int format) {
  return guarded([&] {
    require_given(reinterpret_cast<const void*>(writer), "writer");
    const auto buffer = std::make_unique<WriterBuffer>(writer, user_data);
    std::ostream out(buffer.get());
    write_snapshot(out, format);
    out.flush();
    if (buffer->is_cancelled()) throw cistern::c_api::Cancelled("the snapshot's writer wanted no more of it");
  });
}
