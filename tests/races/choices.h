#pragma once

// Choices: every way through a program that asks now and then which of several things happens
// next. The program is run again and again, each time with the next sequence of answers, until
// all have been given: a depth-first walk of the tree of its choices.

#include <cstddef>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace cistern {

class Choices {
 public:
  // 0 .. alternatives - 1. Requires: alternatives > 0. Throws std::logic_error if the program is not the same each
  // time.
  std::size_t choose(std::size_t alternatives) {
    if (next_ == made_.size()) made_.push_back({0, alternatives});
    if (made_[next_].alternatives != alternatives) throw std::logic_error("another program than before");
    return made_[next_++].taken;
  }
  // Goes on to the next run; false when every run was made.
  bool advance() {
    while (!made_.empty() && made_.back().taken + 1 == made_.back().alternatives) made_.pop_back();
    next_ = 0;
    if (made_.empty()) return false;
    ++made_.back().taken;
    return true;
  }
  // Which run this is, to repeat it by hand: the answers in turn.
  [[nodiscard]] std::string to_string() const {
    std::string text;
    for (const Choice& choice : made_) text += (text.empty() ? "" : ",") + std::to_string(choice.taken);
    return "choices " + text;
  }
  friend std::ostream& operator<<(std::ostream& stream, const Choices& choices) {
    return stream << choices.to_string();
  }

 private:
  struct Choice {
    std::size_t taken;
    std::size_t alternatives;
  };
  std::vector<Choice> made_;
  std::size_t next_ = 0;
};

}  // namespace cistern
