#include "allocator/fragments.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "stats/invariant.h"

namespace cistern {
namespace {

std::size_t words_for(std::size_t bits) { return (bits + 63) / 64; }

// The first bit at or behind `from` that is set; nothing: none is.
std::optional<std::size_t> bit_from(std::span<const std::uint64_t> words, std::size_t from) {
  for (std::size_t word = from / 64; word < words.size(); ++word) {
    const std::uint64_t bits = word == from / 64 ? words[word] >> from % 64 << from % 64 : words[word];
    if (bits != 0) return word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
  }
  return std::nullopt;
}

void set_bit(std::span<std::uint64_t> words, std::size_t bit) { words[bit / 64] |= std::uint64_t{1} << bit % 64; }

// Of one list: a bit for each size, and for each of their words.
struct Words {
  explicit Words(PageSize page) : sizes(words_for(static_cast<std::size_t>(page.sectors()))), words(words_for(sizes)) {}
  [[nodiscard]] std::size_t all() const { return sizes + words; }
  std::size_t sizes;
  std::size_t words;
};

}  // namespace

Fragments::Room Fragments::room_for(PageSize page, std::size_t lists) { return Room(lists * Words(page).all()); }

Fragments::Fragments(PageSize page, std::pmr::memory_resource* memory, Room& room, std::size_t place) : parts_(memory) {
  const Words words(page);
  std::uint64_t* const first = room.data() + place * words.all();
  sizes_ = {first, words.sizes};
  words_ = {first + words.sizes, words.words};
}

void Fragments::add(const Fragment& fragment) {
  parts_.insert(fragment);
  const auto size = static_cast<std::size_t>(fragment.sectors);
  set_bit(sizes_, size);
  set_bit(words_, size / kBits);
}

void Fragments::remove(const Fragment& fragment) noexcept {
  const auto next = parts_.erase(parts_.find(fragment));
  if (next != parts_.end() && next->sectors == fragment.sectors) return;
  if (next != parts_.begin() && std::prev(next)->sectors == fragment.sectors) return;
  const auto size = static_cast<std::size_t>(fragment.sectors);
  std::uint64_t& word = sizes_[size / kBits];
  word &= ~(std::uint64_t{1} << size % kBits);
  if (word == 0) words_[size / kBits / kBits] &= ~(std::uint64_t{1} << size / kBits % kBits);
}

std::optional<Sectors> Fragments::size_from(Sectors sectors) const {
  if (parts_.empty()) return std::nullopt;  // and no page of the room comes
  const auto from = static_cast<std::size_t>(std::max<Sectors>(sectors, 1));
  const std::size_t word = from / kBits;
  if (word >= sizes_.size()) return std::nullopt;
  if (const std::uint64_t bits = sizes_[word] >> from % kBits; bits != 0)
    return static_cast<Sectors>(from) + std::countr_zero(bits);
  const auto next = bit_from(words_, word + 1);
  if (!next) return std::nullopt;
  return static_cast<Sectors>(*next * kBits) + std::countr_zero(sizes_[*next]);
}

const Fragment* Fragments::first_of(Sectors sectors, Sectors address) const {
  const auto found = parts_.lower_bound(Fragment{sectors, address, {}});
  return found != parts_.end() && found->sectors == sectors ? &*found : nullptr;
}

void Fragments::audit() const {
  std::vector<std::uint64_t> sizes(sizes_.size());
  std::vector<std::uint64_t> words(words_.size());
  for (const Fragment& part : parts_) set_bit(sizes, static_cast<std::size_t>(part.sectors));
  for (std::size_t word = 0; word < sizes.size(); ++word)
    if (sizes[word] != 0) set_bit(words, word);
  require(std::ranges::equal(sizes, sizes_) && std::ranges::equal(words, words_),
          "sizes of free fragments that are not there, or are not found");
}

}  // namespace cistern
