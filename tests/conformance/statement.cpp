#include "tests/conformance/statement.h"

#include <algorithm>

namespace cistern::conformance {
namespace {

std::vector<Statement>& registered() {
  static std::vector<Statement> all;
  return all;
}

constexpr const char* kIntroduction =
    "# Conformance\n"
    "\n"
    "Statements of the CUDA documentation, in our own words, and the test of each (`tests/conformance`). The tests "
    "use\n"
    "nothing but the driver table, so they judge any driver: the simulated one, stepped, free-running and behind\n"
    "`libcuda.so.1` of ours (`./dev test`), and a real device (`./dev gpu`, which writes every difference). \"Driver "
    "API\" is\n"
    "the *CUDA Driver API* reference, \"Programming Guide\" the *CUDA C++ Programming Guide*. The page is written by\n"
    "`cistern_conformance --statements`; a test compares them.\n"
    "\n"
    "| number | statement | section | test |\n"
    "| --- | --- | --- | --- |\n";

}  // namespace

Registration::Registration(const char* number, const char* section, const char* text, const char* test) {
  std::vector<Statement>& all = registered();
  const auto place =
      std::find_if(all.begin(), all.end(), [&](const Statement& other) { return number < other.number; });
  all.insert(place, Statement{number, section, text, test});
}

const std::vector<Statement>& statements() { return registered(); }

const Statement* find_statement(const std::string& test) {
  const auto found = std::find_if(registered().begin(), registered().end(),
                                  [&](const Statement& statement) { return statement.test == test; });
  return found == registered().end() ? nullptr : &*found;
}

std::string conformance_page() {
  std::string page = kIntroduction;
  for (const Statement& s : statements()) {
    page += "| " + s.number + " | " + s.text + " | " + s.section + " | `" + s.test + "` |\n";
  }
  return page;
}

}  // namespace cistern::conformance
