#include "runtime/simulated/foreign_records.h"

#include <algorithm>
#include <condition_variable>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace cistern::simulated {

class ForeignRecords::Watcher {
 public:
  Watcher(std::shared_ptr<SharedEvent> first, const Done& done) : table_(std::move(first)), done_(done) {
    thread_ = std::thread([this] { run(); });
  }
  ~Watcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    added_.notify_one();
    table().note_change();
    thread_.join();
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  [[nodiscard]] ExportTable& table() const noexcept { return table_->table(); }

  void add(std::shared_ptr<SharedEvent> event, std::uint64_t number, Target target) {
    {
      const std::lock_guard lock(mutex_);
      waits_.push_back({std::move(event), number, target});
    }
    added_.notify_one();
    // It may have been done before the thread could know of it.
    table().note_change();
  }

 private:
  struct Wait {
    std::shared_ptr<SharedEvent> event;
    std::uint64_t number;
    Target target;
  };

  void run() {
    while (await_work()) {
      const std::uint32_t seen = table().changes();
      const Targets done = take_done();
      if (done.empty()) {
        table().wait_for_change(seen);
      } else {
        done_(done);
      }
    }
  }

  // False: stop.
  bool await_work() {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return stopping_ || !waits_.empty(); });
    return !stopping_;
  }

  Targets take_done() {
    Targets done;
    const std::lock_guard lock(mutex_);
    const auto first = std::stable_partition(
        waits_.begin(), waits_.end(), [](const Wait& wait) { return !wait.event->check_abandoned(wait.number); });
    for (auto wait = first; wait != waits_.end(); ++wait) done.push_back(wait->target);
    waits_.erase(first, waits_.end());
    return done;
  }

  const std::shared_ptr<SharedEvent> table_;  // keeps the table mapped
  const Done& done_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<Wait> waits_;
  bool stopping_ = false;
  std::thread thread_;
};

ForeignRecords::ForeignRecords(Done done) : done_(std::move(done)) {}
ForeignRecords::~ForeignRecords() { stop(); }

void ForeignRecords::watch(std::shared_ptr<SharedEvent> event, std::uint64_t number, Target target) {
  const std::lock_guard lock(mutex_);
  const auto same_table = [&](const auto& watcher) { return &watcher->table() == &event->table(); };
  const auto found = std::find_if(watchers_.begin(), watchers_.end(), same_table);
  if (found != watchers_.end()) {
    (*found)->add(std::move(event), number, target);
    return;
  }
  try {
    watchers_.push_back(std::make_unique<Watcher>(event, done_));
  } catch (const std::system_error&) {
    throw std::bad_alloc();  // no thread
  }
  watchers_.back()->add(std::move(event), number, target);
}

void ForeignRecords::stop() noexcept {
  std::vector<std::unique_ptr<Watcher>> ending;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(watchers_);
  }
}

}  // namespace cistern::simulated
