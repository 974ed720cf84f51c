// From many tensors to many devices, in few copies.

#include <cistern/comm.h>
#include <cistern/error.h>
#include <cistern/memory.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "integrations/comm/checks.h"
#include "integrations/comm/exchange.h"
#include "integrations/comm/transports.h"

namespace cistern::comm {
namespace {

constexpr std::size_t kMostBytes = std::numeric_limits<std::int64_t>::max();

void check_all(const std::vector<TensorView>& tensors, std::size_t buffer_bytes) {
  if (buffer_bytes == 0) throw InvalidArgument("a buffer of 0 bytes: expected at least one");
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_tensor(tensors[i], numbered("tensor", i));
    if (device_index(tensors[i]) != device_index(tensors.front()))
      throw InvalidArgument(
          fmt::format("tensor {} is on {}, tensor 0 on {}: expected all on one device, or all on the host", i,
                      place_text(device_index(tensors[i])), place_text(device_index(tensors.front()))));
    if (tensors[i].bytes() > kMostBytes - bytes)
      throw InvalidArgument(
          fmt::format("tensors of {} bytes and, tensor {}, of {} more: expected no more together than the address "
                      "space has",
                      bytes, i, tensors[i].bytes()));
    bytes += tensors[i].bytes();
  }
}

// Tensors of one type, one after the other as bytes, and where that goes on each device.
class Train {
 public:
  // In parts of at most `buffer_bytes`.
  Train(const std::vector<TensorView>& tensors, std::vector<std::size_t> members, const std::vector<int>& devices,
        std::size_t buffer_bytes)
      : tensors_(tensors), members_(std::move(members)), buffer_bytes_(buffer_bytes) {
    for (const std::size_t i : members_) bytes_ += tensors_[i].bytes();
    const DType type = tensors_[members_.front()].dtype;
    const auto elements = static_cast<std::int64_t>(bytes_ / size_of(type));
    for (const int device : devices) arrivals_.push_back(Tensor::empty({elements}, type, Device(device)));
  }

  // Throws NotSupported where the host would pack for a stream that captures.
  void check_captures() const {
    if (!tensors_[members_.front()].place.is_host()) return;
    for (std::size_t first = 0; first < bytes_; first += buffer_bytes_) {
      const std::vector<Piece> pieces = pieces_of(first, std::min(buffer_bytes_, bytes_ - first));
      if (pieces.size() == 1 && tensors_[pieces.front().tensor].is_contiguous()) continue;
      for (const Tensor& arrival : arrivals_) require_no_capture(stream_of(arrival), kHostPacks);
    }
  }

  void send(Transport transport) {
    for (std::size_t first = 0; first < bytes_; first += buffer_bytes_)
      send_part(first, std::min(buffer_bytes_, bytes_ - first), transport);
  }

  // The tensors that have arrived on a device, in the places of those that left.
  void unload(std::size_t device, std::vector<Tensor>& places) const {
    const Tensor& arrival = arrivals_[device];
    std::size_t offset = 0;
    for (const std::size_t i : members_) {
      TensorView view(arrival.view().data, tensors_[i].dtype, tensors_[i].shape, arrival.view().place);
      view.byte_offset = offset;
      offset += tensors_[i].bytes();
      places[i] = Tensor(std::move(view), arrival.owner());
    }
  }

 private:
  // Bytes of one tensor, from its own `first` on.
  struct Piece {
    std::size_t tensor;
    std::size_t first;
    std::size_t bytes;
  };
  [[nodiscard]] std::vector<Piece> pieces_of(std::size_t first, std::size_t bytes) const {
    std::vector<Piece> pieces;
    std::size_t start = 0;
    for (const std::size_t i : members_) {
      const std::size_t from = std::max(start, first);
      const std::size_t to = std::min(start + tensors_[i].bytes(), first + bytes);
      if (from < to) pieces.push_back({i, from - start, to - from});
      start += tensors_[i].bytes();
    }
    return pieces;
  }

  // A contiguous tensor's bytes are sent from where they are, others through the buffer.
  TensorView loaded(Exchange& exchange, const std::vector<Piece>& pieces, std::size_t bytes,
                    const Stream& reads) const {
    const auto whole = [&](const Piece& piece) { return exchange.packed(tensors_[piece.tensor], reads); };
    if (pieces.size() == 1) return byte_view(whole(pieces.front()), pieces.front().first, bytes);
    const Place place = tensors_[members_.front()].place;
    const TensorView shape(nullptr, DType::uint8, {static_cast<std::int64_t>(bytes)}, place);
    const TensorView buffer = exchange.staging(shape, place, reads);
    std::size_t filled = 0;
    for (const Piece& piece : pieces) {
      const TensorView source = byte_view(whole(piece), piece.first, piece.bytes);
      const TensorView target = byte_view(buffer, filled, piece.bytes);
      if (place.is_host())
        std::memcpy(target.first(), source.first(), piece.bytes);
      else
        copy_async(target.first(), source.first(), piece.bytes, reads);
      filled += piece.bytes;
    }
    return buffer;
  }

  void send_part(std::size_t first, std::size_t bytes, Transport transport) {
    const std::vector<Piece> pieces = pieces_of(first, bytes);
    const TensorView& origin = tensors_[members_.front()];
    const Stream reads = origin.place.is_host() ? stream_of(arrivals_.front()) : stream_of(origin);
    Exchange exchange;
    for (const Piece& piece : pieces) exchange.uses(tensors_[piece.tensor], reads);
    const TensorView source = loaded(exchange, pieces, bytes, reads);
    std::vector<TensorView> targets;
    for (const Tensor& arrival : arrivals_) targets.push_back(byte_view(arrival.view(), first, bytes));
    if (transport == Transport::nccl) {
      broadcast_by_nccl(source, targets);
      return exchange.finish();
    }
    for (const TensorView& target : targets) {
      const Stream run = stream_of(target);
      if (!origin.place.is_host()) {
        for (const Piece& piece : pieces) exchange.uses(tensors_[piece.tensor], run);
        exchange.lend(reads, run);
      }
      exchange.copy(target, source, run);
    }
    exchange.finish();
  }

  const std::vector<TensorView>& tensors_;
  std::vector<std::size_t> members_;
  std::size_t buffer_bytes_;
  std::size_t bytes_ = 0;
  std::vector<Tensor> arrivals_;  // one for each device
};

// Those of each type that is there, in the order in which they come.
std::vector<std::vector<std::size_t>> by_type(const std::vector<TensorView>& tensors) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const std::vector<std::size_t>& each) {
      return tensors[each.front()].dtype == tensors[i].dtype;
    });
    if (group == groups.end())
      groups.push_back({i});
    else
      group->push_back(i);
  }
  return groups;
}

}  // namespace

std::vector<std::vector<Tensor>> broadcast_coalesced(const std::vector<TensorView>& tensors,
                                                     const std::vector<Device>& devices, std::size_t buffer_bytes,
                                                     Transport transport) {
  check_all(tensors, buffer_bytes);
  const std::vector<int> indices = resolved(devices);
  std::vector<std::vector<Tensor>> arrived(devices.size());
  for (std::vector<Tensor>& each : arrived) each.resize(tensors.size());
  if (devices.empty()) return arrived;
  std::vector<Train> trains;
  for (const std::vector<std::size_t>& group : by_type(tensors)) {
    std::vector<std::size_t> small;
    for (const std::size_t i : group) {
      if (tensors[i].bytes() > buffer_bytes)
        trains.emplace_back(tensors, std::vector<std::size_t>{i}, indices, tensors[i].bytes());
      else
        small.push_back(i);
    }
    if (!small.empty()) trains.emplace_back(tensors, std::move(small), indices, buffer_bytes);
  }
  for (const Train& train : trains) train.check_captures();
  for (Train& train : trains) train.send(transport);
  for (const Train& train : trains)
    for (std::size_t d = 0; d < devices.size(); ++d) train.unload(d, arrived[d]);
  return arrived;
}

}  // namespace cistern::comm
