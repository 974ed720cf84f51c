#pragma once

// How much of a list of owners a subcommand shows: --limit and --frames, and --json, which shows all unless
// it is told otherwise.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tools/usage.h"

namespace cistern {

struct Listing {
  std::optional<std::uint64_t> owners;
  std::optional<std::uint64_t> frames;
  bool json = false;

  // Declares the options; the listing must outlive the parsing.
  void add_to(CLI::App& app) {
    add_whole_number(app, "--limit", owners, "show N owners, 0 for all; by default 20, and all with --json");
    add_whole_number(app, "--frames", frames, "show N frames a stack, 0 for all; by default 8, and all with --json");
    app.add_flag("--json", json, "print one JSON object");
  }

  // Of so many, how many are shown.
  [[nodiscard]] std::size_t shown_owners(std::size_t all) const { return shown(owners, 20, all); }
  [[nodiscard]] std::size_t shown_frames(std::size_t all) const { return shown(frames, 8, all); }

 private:
  [[nodiscard]] std::size_t shown(std::optional<std::uint64_t> asked, std::uint64_t of_text, std::size_t all) const {
    const std::uint64_t most = asked.value_or(json ? 0 : of_text);
    return most == 0 ? all : static_cast<std::size_t>(std::min<std::uint64_t>(most, all));
  }
};

}  // namespace cistern
