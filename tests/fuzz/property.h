#pragma once

// What every fuzz target asks of a reader.

#include <cistern/error.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace cistern {

// Stops the run where `holds` is false: a fuzzer keeps the input that led there.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// An error is one line of printable text, whatever it quotes.
inline void require_one_line(const Error& error) {
  const std::string_view text = error.what();
  require(!text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; }),
          "an error is one line of printable text");
  require(text.size() < 2048, "an error is short");
}

}  // namespace cistern

// The entry point of a target: libFuzzer calls it, and so does stored_corpus.cpp.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
