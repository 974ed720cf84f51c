// What a placement remembers beside lists and maps of all of it: the places that blocks have had, which are forgotten
// where nobody uses them; the windows that were mapped before; and in which pieces places came from other streams.

#include "allocator/known_places.h"

#include "allocator/hand_overs.h"
#include "allocator/past_windows.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace cistern {
namespace {

// Places by where they are, and which a block has, or will be looked at again.
class PlacesProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const Sectors address = static_cast<Sectors>(steps.word() % 4096);
    const Sectors sectors = 8 + static_cast<Sectors>(kind / 64);
    const std::size_t most = kind % 2 == 0 ? 20 : 2000;
    switch (kind / 2 % 8) {
      case 0:
        // Many that nobody stays at.
        for (Sectors i = 0; i < 1 + static_cast<Sectors>(kind / 32) * 64; ++i) obtain(address + i, sectors, most);
        break;
      case 1:
      case 2:
        return obtain(address % 64, sectors, most);
      case 3:
      case 4:
        return take(address % 64, sectors, most, kind >= 128);
      case 5:
        return leave(steps.byte());
      case 6:
        return change(steps.byte());
      default:
        look();
    }
  }
  // Of places that nobody looks for.
  void step_unnamed(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    if (kind % 2 == 0 || unnamed_.empty()) {
      places_.provide(1, 20);
      const std::size_t size = places_.size();
      const std::pair place{static_cast<Sectors>(kind / 4 % 64), Sectors{8}};
      const KnownPlaces::Number number = places_.add(place.first, place.second);
      require(places_.size() == size + 1, "one more is known");
      require(unnamed_.emplace(number, place).second, "a number is of one place");
      places_[number].is_live = true;
    } else {
      // Whoever looks at what changed gives it back.
      const auto left = std::next(unnamed_.begin(), static_cast<std::ptrdiff_t>(kind / 2 % unnamed_.size()));
      places_[left->first].is_live = false;
      places_.change(left->first);
    }
  }
  void compare_all() const {
    places_.audit();
    std::multiset<std::pair<Sectors, Sectors>> live;
    for (const auto& [number, place] : unnamed_) {
      require(places_[number].address == place.first && places_[number].sectors == place.second,
              "a place without a name has its number");
      require(!places_.names(number, place.first, place.second), "which nobody knows it by");
      require(places_[number].is_live || places_[number].is_changed, "what is noted of a place stays");
      if (places_[number].is_live) live.insert(place);
    }
    for (const auto& [place, known] : known_) {
      const KnownPlace& found = places_[known.number];
      require(places_.names(known.number, place.first, place.second) && found.address == place.first,
              "a number is of the same place as long as it is in use");
      require(found.is_live == known.is_live && found.is_taken == known.is_taken, "what is noted of a place stays");
      require(found.is_changed == known.is_changed, "whether it changed");
      if (known.is_live) live.insert(place);
    }
    places_.for_each_live([&](const KnownPlace& place) {
      const auto found = live.find({place.address, place.sectors});
      require(found != live.end(), "a place that a block has is one that was taken");
      live.erase(found);
    });
    require(live.empty(), "all places that blocks have are visited");
    std::vector<KnownPlaces::Number> changed(places_.changed().begin(), places_.changed().end());
    std::sort(changed.begin(), changed.end());
    std::vector<KnownPlaces::Number> expected;
    for (const auto& [place, known] : known_)
      if (known.is_changed) expected.push_back(known.number);
    for (const auto& [number, place] : unnamed_)
      if (places_[number].is_changed) expected.push_back(number);
    std::sort(expected.begin(), expected.end());
    require(changed == expected, "what changed is in the list, once");
    require(places_.size() >= known_.size() + unnamed_.size(), "no place that is in use is forgotten");
  }

 private:
  struct Known {
    KnownPlaces::Number number = KnownPlaces::kNone;
    bool is_live = false;
    bool is_taken = false;
    bool is_changed = false;
  };

  KnownPlaces::Number number_of(Sectors address, Sectors sectors, std::size_t most) {
    const bool has_room = places_.has_room(1, most);
    const std::size_t before = places_.size();
    places_.provide(1, most);
    require(!has_room || places_.size() == before, "where there is room all places stay");
    const std::size_t size = places_.size();
    places_.fetch(address, sectors);
    const KnownPlaces::Number number = places_.obtain(address, sectors);
    require(!unnamed_.contains(number), "a place without a name is not found");
    require(places_.size() == size || places_.size() == size + 1, "one more is known at most");
    require(places_.obtain(address, sectors) == number, "a place that is known is found");
    const KnownPlace& place = places_[number];
    require(places_.names(number, address, sectors) && place.address == address, "the number is of that place");
    return number;
  }
  void obtain(Sectors address, Sectors sectors, std::size_t most) {
    const KnownPlaces::Number number = number_of(address, sectors, most);
    const auto known = known_.find({address, sectors});
    if (known == known_.end())
      require(!places_[number].is_live && !places_[number].is_taken && !places_[number].is_changed,
              "nobody is at a place that is not in use");
    else
      require(known->second.number == number, "a place in use keeps its number");
  }
  void take(Sectors address, Sectors sectors, std::size_t most, bool is_taken) {
    const KnownPlaces::Number number = number_of(address, sectors, most);
    Known& known = known_.try_emplace({address, sectors}, Known{number, false, false, false}).first->second;
    require(known.number == number, "a place in use keeps its number");
    (is_taken ? known.is_taken : known.is_live) = true;
    (is_taken ? places_[number].is_taken : places_[number].is_live) = true;
  }
  void leave(std::uint64_t which) {
    if (known_.empty()) return;
    const auto place = std::next(known_.begin(), static_cast<std::ptrdiff_t>(which % known_.size()));
    KnownPlace& left = places_[place->second.number];
    place->second.is_live = place->second.is_taken = left.is_live = left.is_taken = false;
    if (!place->second.is_changed) known_.erase(place);
  }
  void change(std::uint64_t which) {
    if (known_.empty()) return;
    const auto place = std::next(known_.begin(), static_cast<std::ptrdiff_t>(which % known_.size()));
    places_.change(place->second.number);
    place->second.is_changed = true;
  }
  // Whoever looks at what changed empties the list.
  void look() {
    compare_all();
    for (const KnownPlaces::Number number : places_.changed()) {
      const auto unnamed = unnamed_.find(number);
      if (unnamed != unnamed_.end() && !places_[number].is_live) unnamed_.erase(unnamed);
      places_.looked_at(number);
    }
    places_.changed().clear();
    for (auto& [place, known] : known_) known.is_changed = false;
    std::erase_if(known_, [](const auto& place) { return !place.second.is_live && !place.second.is_taken; });
  }

  KnownPlaces places_;
  std::map<std::pair<Sectors, Sectors>, Known> known_;                  // that are in use
  std::map<KnownPlaces::Number, std::pair<Sectors, Sectors>> unnamed_;  // likewise
};

class WindowsProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const auto stream = static_cast<StreamNumber>(kind / 8 % 3);
    const Sectors sectors = 20 + static_cast<Sectors>(kind / 32);
    const std::uint64_t text = steps.byte();
    // Up to more than are kept, or are asked.
    for (Sectors address = static_cast<Sectors>(text % 16), end = address + static_cast<Sectors>(text / 12);
         address < end && kind != 255; ++address) {
      if (kind % 8 < 3) {
        windows_.note_exact(sectors, stream, address);
        noted_.push_back({sectors, stream, address});
      } else if (kind % 8 < 6) {
        windows_.note_length(sectors, stream, address);
        by_length_.emplace(stream, sectors, address);
      }
    }
    if (kind == 255) {
      windows_.forget();
      noted_.clear();
      by_length_.clear();
    }
    // One is usable alone; or few are, or none.
    const std::uint64_t usable = steps.byte();
    const auto is_usable = [&](Sectors at) {
      const auto place = static_cast<std::uint64_t>(at);
      return usable % 2 == 0 ? place == usable / 2 % 40 : place % 16 < usable / 16;
    };
    require(windows_.exact(sectors, stream, is_usable) == exact(sectors, stream, is_usable),
            "the newest window of its size");
    require(windows_.longer(sectors, stream, is_usable) == longer(sectors, stream, is_usable),
            "the shortest window that is longer");
  }

 private:
  struct Noted {
    Sectors sectors;
    StreamNumber stream;
    Sectors address;
  };
  template <class IsUsable>
  [[nodiscard]] std::optional<Sectors> exact(Sectors sectors, StreamNumber stream, IsUsable&& is_usable) const {
    int tries = 0;
    for (auto noted = noted_.rbegin(); noted != noted_.rend() && tries < 8; ++noted) {
      if (noted->sectors != sectors || noted->stream != stream) continue;
      if (is_usable(noted->address)) return noted->address;
      ++tries;
    }
    return std::nullopt;
  }
  template <class IsUsable>
  [[nodiscard]] std::optional<Sectors> longer(Sectors sectors, StreamNumber stream, IsUsable&& is_usable) const {
    int tries = 0;
    for (const auto& [of, length, address] : by_length_) {
      if (of != stream || length < sectors || length > sectors + sectors / 4 || tries == 16) continue;
      if (is_usable(address)) return address;
      ++tries;
    }
    return std::nullopt;
  }

  PastWindows windows_;
  std::vector<Noted> noted_;
  std::set<std::tuple<StreamNumber, Sectors, Sectors>> by_length_;
};

class HandOversProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    if (kind == 255) {
      hand_overs_.forget();
      records_.clear();
    } else {
      note(record(kind, steps.byte()));
    }
    require(hand_overs_.size() == records_.size(), "how many records there are");
    for (const auto& [number, record] : records_) {
      const HandOvers::Record* found = hand_overs_.find(number);
      require(found != nullptr && *found == record, "a record has its number");
    }
    require(hand_overs_.find(static_cast<HandOvers::Number>(kind)) == nullptr, "a place's number is no record's");
    require(hand_overs_.find(HandOvers::kNone) == nullptr, "nor is none");
  }

 private:
  static HandOvers::Record record(std::uint64_t kind, std::uint64_t text) {
    HandOvers::Record record{static_cast<KnownPlaces::Number>(kind % 4), {}};
    for (std::uint64_t piece = 0; piece < 1 + kind / 4 % 3; ++piece, text /= 4)
      record.pieces.push_back({static_cast<Sectors>(8 * piece), 8, static_cast<StreamNumber>(text % 4)});
    return record;
  }
  void note(const HandOvers::Record& record) {
    const HandOvers::Number number = hand_overs_.note(record);
    const auto same =
        std::find_if(records_.begin(), records_.end(), [&](const auto& known) { return known.second == record; });
    if (same != records_.end())
      require(number == same->first, "equal records are one");
    else
      require(records_.emplace(number, record).second, "another record has another number");
  }

  HandOvers hand_overs_;
  std::map<HandOvers::Number, HandOvers::Record> records_;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  PlacesProgram places;
  WindowsProgram windows;
  HandOversProgram hand_overs;
  Steps steps(data, size);
  while (steps.more()) {
    const std::uint64_t byte = steps.byte();
    const std::uint64_t which = byte % 4;
    if (which < 2 && byte >= 192)
      places.step_unnamed(steps);
    else if (which < 2)
      places.step(steps);
    else if (which == 2)
      windows.step(steps);
    else
      hand_overs.step(steps);
  }
  places.compare_all();
  return 0;
}
