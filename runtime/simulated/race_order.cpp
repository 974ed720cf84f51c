#include "runtime/simulated/race_order.h"

#include <algorithm>
#include <utility>

namespace cistern::simulated {
namespace {

constexpr std::uint32_t kHost = 0;

}  // namespace

RaceOrder::RaceOrder(int devices)
    : retired_(static_cast<std::size_t>(devices)), legacy_(static_cast<std::size_t>(devices)) {}

std::uint32_t RaceOrder::open_component(const RaceClock& clock) {
  const auto known = std::find_if(closed_.begin(), closed_.end(), [&](std::uint32_t component) {
    return clock.covers({component, latest_[component]});
  });
  if (known != closed_.end()) {
    const std::uint32_t component = *known;
    closed_.erase(known);
    return component;
  }
  latest_.push_back(0);
  return static_cast<std::uint32_t>(latest_.size() - 1);
}

RaceOrder::Stream& RaceOrder::stream(const StreamQueue& queue) {
  const auto found = streams_.find(queue.id);
  if (found != streams_.end()) return found->second;
  Stream& stream = streams_[queue.id];
  stream.device = queue.device;
  stream.is_legacy = queue.handle == nullptr;
  stream.is_blocking = !stream.is_legacy && queue.synchronizes_with_legacy();
  stream.component = open_component(host_);
  stream.clock = host_;
  if (stream.is_legacy) legacy_[static_cast<std::size_t>(queue.device)] = &stream;
  return stream;
}

void RaceOrder::join_blocking(RaceClock& clock, int device) const {
  for (const auto& [id, other] : streams_) {
    if (other.device == device && other.is_blocking) clock.join(other.clock);
  }
  clock.join(retired_[static_cast<std::size_t>(device)].blocking);
}

// --- Work -------------------------------------------------------------------------------

RaceClock RaceOrder::next(const Stream& stream) const {
  RaceClock clock = stream.clock;
  clock.join(host_);
  if (stream.is_legacy) {
    join_blocking(clock, stream.device);
  } else if (const Stream* legacy = legacy_[static_cast<std::size_t>(stream.device)];
             stream.is_blocking && legacy != nullptr) {
    clock.join(legacy->clock);
  }
  return clock;
}

RaceClock RaceOrder::next(const StreamQueue& queue) { return next(stream(queue)); }

RaceClock RaceOrder::next(std::uint64_t stream_id, int device) const {
  if (const auto known = streams_.find(stream_id); known != streams_.end()) return next(known->second);
  RaceClock clock = host_;
  clock.join(retired_[static_cast<std::size_t>(device)].all);
  return clock;
}

RaceMoment RaceOrder::submit(const StreamQueue& queue) {
  Stream& own = stream(queue);
  RaceMoment moment{tick(own.component), next(own)};
  moment.clock.advance(moment.epoch);
  own.clock = moment.clock;
  return moment;
}

RaceMoment RaceOrder::touch_by_host() {
  host_.advance(tick(kHost));
  return {{kHost, latest_[kHost]}, host_};
}

// --- Graph launches ---------------------------------------------------------------------

RaceClock RaceOrder::begin_launch(const StreamQueue& queue) { return next(queue); }

RaceMoment RaceOrder::submit_node(const RaceClock& after) {
  const std::uint32_t component = open_component(after);
  RaceMoment moment{tick(component), after};
  moment.clock.advance(moment.epoch);
  // A node that comes after this one, and knows all of the component, may continue it.
  closed_.push_back(component);
  return moment;
}

void RaceOrder::end_launch(const StreamQueue& queue, const RaceClock& end) { stream(queue).clock.join(end); }

// --- Events -----------------------------------------------------------------------------

void RaceOrder::record(const Event* event, const StreamQueue& queue) {
  Stream& own = stream(queue);
  own.clock = next(own);
  events_[event] = own.clock;
}

bool RaceOrder::join_record(const Event* event, RaceClock* clock) const {
  const auto recorded = events_.find(event);
  if (recorded == events_.end()) return false;
  clock->join(recorded->second);
  return true;
}

bool RaceOrder::wait(const StreamQueue& queue, const Event* event) {
  const auto recorded = events_.find(event);
  if (recorded == events_.end()) return false;
  Stream& own = stream(queue);
  own.clock = next(own);
  own.clock.join(recorded->second);
  return true;
}

// --- What the host learns ---------------------------------------------------------------

void RaceOrder::host_waited_for(const StreamQueue& queue) {
  const Stream& own = stream(queue);
  host_.join(own.clock);
  if (own.is_legacy) join_blocking(host_, own.device);
}

void RaceOrder::host_waited_for(const Event* event) {
  if (const auto recorded = events_.find(event); recorded != events_.end()) host_.join(recorded->second);
}

void RaceOrder::host_waited_for_device(int device) {
  for (const auto& [id, other] : streams_) {
    if (other.device == device) host_.join(other.clock);
  }
  host_.join(retired_[static_cast<std::size_t>(device)].all);
}

void RaceOrder::forget(const StreamQueue& queue) {
  const auto found = streams_.find(queue.id);
  if (found == streams_.end()) return;
  const Stream& gone = found->second;
  Retired& retired = retired_[static_cast<std::size_t>(gone.device)];
  retired.all.join(gone.clock);
  if (gone.is_blocking) retired.blocking.join(gone.clock);
  closed_.push_back(gone.component);
  streams_.erase(found);
}

}  // namespace cistern::simulated
