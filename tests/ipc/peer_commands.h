#pragma once

// The loop of a peer: reads commands from standard input, answers each with one line.

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>

namespace cistern::testing {

// The arguments of one command, in order.
class Arguments {
 public:
  explicit Arguments(const std::string& line) : in_(line) {}
  std::string word() {
    std::string text;
    in_ >> text;
    return text;
  }
  std::uint64_t number() { return std::stoull(word(), nullptr, 0); }
  template <class Pointer>
  Pointer pointer() {
    return reinterpret_cast<Pointer>(number());
  }
  // A value of plain bytes, in hexadecimal.
  template <class Value>
  Value bytes() {
    static_assert(std::is_trivially_copyable_v<Value>);
    const std::string text = word();
    Value value{};
    for (std::size_t i = 0; i < sizeof value && 2 * i + 1 < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
      std::memcpy(reinterpret_cast<unsigned char*>(&value) + i, &byte, 1);
    }
    return value;
  }

 private:
  std::istringstream in_;
};

using Commands = std::map<std::string, std::function<std::string(Arguments&)>>;

inline int serve(const Commands& commands) {
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    Arguments arguments(line);
    const auto command = commands.find(arguments.word());
    std::string answer;
    try {
      answer = command == commands.end() ? "error: unknown command " + line : command->second(arguments);
    } catch (const std::exception& error) {
      answer = std::string("error: ") + error.what();
    }
    std::cout << answer << std::endl;
  }
  return 0;
}

}  // namespace cistern::testing
