#include "runtime/strided_values.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

namespace cistern {
namespace {

// Element by element along the last extent, whose strides are the steps.
template <class Value, class Combine>
void run_as(const StridedWork& work, Combine combine) {
  auto* const destination = reinterpret_cast<Value*>(work.destination);
  const auto* const source = reinterpret_cast<const Value*>(work.source);
  const std::uint64_t row = work.rank == 0 ? 1 : work.extents[work.rank - 1];
  const std::int64_t to_step = work.rank == 0 ? 0 : work.destination_strides[work.rank - 1];
  const std::int64_t from_step = work.rank == 0 ? 0 : work.source_strides[work.rank - 1];
  for (std::uint64_t first = 0; first < work.count; first += row) {
    const StridedOffsets at = offsets_at(work, first);
    Value* to = destination + at.destination;
    const Value* from = source + at.source;
    for (std::uint64_t i = 0; i < row; ++i, to += to_step, from += from_step) *to = combine(*to, *from);
  }
}

void copy(const StridedWork& work) {
  switch (size_of(work.element)) {
    case 1:
      return run_as<std::uint8_t>(work, TheSecond());
    case 2:
      return run_as<std::uint16_t>(work, TheSecond());
    case 4:
      return run_as<std::uint32_t>(work, TheSecond());
    default:
      return run_as<std::uint64_t>(work, TheSecond());
  }
}

void add(const StridedWork& work) {
  switch (work.element) {
    case Element::u8:
      return run_as<std::uint8_t>(work, PlainSum());
    case Element::u16:
      return run_as<std::uint16_t>(work, PlainSum());
    case Element::u32:
      return run_as<std::uint32_t>(work, PlainSum());
    case Element::u64:
      return run_as<std::uint64_t>(work, PlainSum());
    case Element::f16:
      return run_as<std::uint16_t>(work, HalfSum());
    case Element::bf16:
      return run_as<std::uint16_t>(work, BfloatSum());
    case Element::f32:
      return run_as<float>(work, PlainSum());
    case Element::f64:
      return run_as<double>(work, PlainSum());
    case Element::boolean:
      return run_as<std::uint8_t>(work, AnyOf());
  }
}

struct Extent {
  std::uint64_t count;
  std::int64_t to;
  std::int64_t from;
};

// `inner` is done after `outer`: whether they are one extent.
bool are_one(const Extent& outer, const Extent& inner) {
  const auto count = static_cast<std::int64_t>(inner.count);
  return outer.to == inner.to * count && outer.from == inner.from * count;
}

// One side alone: the extents that spread its elements, by ascending stride, joined where they are one run.
std::vector<std::pair<std::int64_t, std::uint64_t>> runs_of(const StridedWork& work, const std::int64_t* strides) {
  std::vector<std::pair<std::int64_t, std::uint64_t>> extents;
  for (std::uint32_t d = 0; d < work.rank; ++d)
    if (work.extents[d] > 1 && strides[d] != 0) extents.emplace_back(strides[d], work.extents[d]);
  std::sort(extents.begin(), extents.end());
  std::vector<std::pair<std::int64_t, std::uint64_t>> joined;
  for (const auto& each : extents) {
    if (!joined.empty() && each.first == joined.back().first * static_cast<std::int64_t>(joined.back().second))
      joined.back().second *= each.second;
    else
      joined.push_back(each);
  }
  return joined;
}

}  // namespace

void run_strided(const StridedWork& work) noexcept {
  if (work.count == 0) return;
  work.operation == StridedOperation::copy ? copy(work) : add(work);
}

std::vector<ByteRange> ranges_of(std::uint64_t address, const StridedWork& work, const std::int64_t* strides,
                                 std::size_t limit) {
  const std::uint64_t size = size_of(work.element);
  if (work.count == 0) return {};
  auto extents = runs_of(work, strides);
  std::uint64_t run = size;
  if (!extents.empty() && extents.front().first == 1) {
    run *= extents.front().second;
    extents.erase(extents.begin());
  }
  std::uint64_t span = run;
  std::uint64_t runs = 1;
  for (const auto& [stride, count] : extents) {
    span += static_cast<std::uint64_t>(stride) * (count - 1) * size;
    runs = runs > limit ? runs : runs * count;
  }
  if (runs > limit) return {{address, address + span}};
  std::vector<std::uint64_t> starts{address};
  for (const auto& [stride, count] : extents) {
    const std::size_t known = starts.size();
    for (std::uint64_t i = 1; i < count; ++i)
      for (std::size_t k = 0; k < known; ++k)
        starts.push_back(starts[k] + i * static_cast<std::uint64_t>(stride) * size);
  }
  std::sort(starts.begin(), starts.end());
  std::vector<ByteRange> ranges;
  for (const std::uint64_t start : starts) {
    if (!ranges.empty() && start <= ranges.back().end)
      ranges.back().end = std::max(ranges.back().end, start + run);
    else
      ranges.push_back({start, start + run});
  }
  return ranges;
}

void simplify(StridedWork& work) noexcept {
  std::array<Extent, kMaxRank> extents{};
  std::size_t rank = 0;
  for (std::uint32_t d = 0; d < work.rank; ++d)
    if (work.extents[d] != 1) extents[rank++] = {work.extents[d], work.destination_strides[d], work.source_strides[d]};
  const auto end = extents.begin() + static_cast<std::ptrdiff_t>(rank);
  std::sort(extents.begin(), end,
            [](const Extent& a, const Extent& b) { return std::pair(a.to, a.from) > std::pair(b.to, b.from); });
  work.rank = 0;
  for (auto each = extents.begin(); each != end; ++each) {
    const std::uint32_t last = work.rank - 1;
    if (work.rank > 0 &&
        are_one({work.extents[last], work.destination_strides[last], work.source_strides[last]}, *each)) {
      work.extents[last] *= each->count;
      work.destination_strides[last] = each->to;
      work.source_strides[last] = each->from;
    } else {
      work.extents[work.rank] = each->count;
      work.destination_strides[work.rank] = each->to;
      work.source_strides[work.rank] = each->from;
      ++work.rank;
    }
  }
}

bool is_plain_run(const StridedWork& work) noexcept {
  return work.rank == 0 || (work.rank == 1 && work.destination_strides[0] == 1 && work.source_strides[0] == 1);
}

}  // namespace cistern
