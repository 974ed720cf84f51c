#pragma once

// A statement of the CUDA documentation and the test that asks a driver whether it holds.
//
//   STATEMENT(C017, Streams, QueryOfAnIdleStream,
//             "Driver API, Stream Management, cuStreamQuery",
//             "A stream without work is done.") { body of the test }
//
// is the test Streams.C017_QueryOfAnIdleStream. docs/conformance.md lists all of them.

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cistern::conformance {

struct Statement {
  std::string number;   // "C017"
  std::string section;  // document and section
  std::string text;     // in our own words
  std::string test;     // "Streams.C017_QueryOfAnIdleStream"
};

// All statements of this program, by number.
[[nodiscard]] const std::vector<Statement>& statements();
// The statement that a test belongs to; null for any other test.
[[nodiscard]] const Statement* find_statement(const std::string& test);
// docs/conformance.md as it has to be.
[[nodiscard]] std::string conformance_page();

class Registration {
 public:
  Registration(const char* number, const char* section, const char* text, const char* test);
};

}  // namespace cistern::conformance

#define STATEMENT(number, concern, name, section, text)                                                  \
  static const ::cistern::conformance::Registration registered_##number(#number, section, text,          \
                                                                        #concern "." #number "_" #name); \
  TEST_F(concern, number##_##name)
