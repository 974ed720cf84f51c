// How a report names whose a stack is.

#include "stats/stack_owner.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cistern {
namespace {

StackInfo stack_of(const std::vector<std::string>& functions) {
  StackInfo stack;
  for (const std::string& function : functions) {
    FrameInfo frame;
    frame.name = function;
    frame.filename = "/src/" + function.substr(0, 3) + ".cpp";
    frame.line = static_cast<std::int64_t>(stack.size());
    stack.push_back(frame);
  }
  return stack;
}

TEST(StackOwner, ANameStandsWithoutReturnTypeAndParameters) {
  EXPECT_EQ(name_alone("main"), "main");
  EXPECT_EQ(name_alone("train(unsigned long)"), "train");
  EXPECT_EQ(name_alone("void train::Step::forward<float>(Batch const&) const"), "train::Step::forward<float>");
  EXPECT_EQ(name_alone("a::(anonymous namespace)::f(int (*)(char))"), "a::f");
  EXPECT_EQ(name_alone("std::function<void (int)>::operator()(int) const"), "std::function<void (int)>::operator()");
  EXPECT_EQ(name_alone("operator new(unsigned long)"), "operator new");
  EXPECT_EQ(name_alone("std::ostream& a::operator<<(std::ostream&, a::T const&)"), "a::operator<<");
  EXPECT_EQ(name_alone("main::{lambda(int)#1}::operator()(int) const"), "main::{lambda(int)#1}::operator()");
  EXPECT_EQ(name_alone("cooperator(int)"), "cooperator");
  EXPECT_EQ(name_alone("operators::f()"), "operators::f");
  EXPECT_EQ(name_alone("libc.so.6+0x2a1ca"), "libc.so.6+0x2a1ca");
  EXPECT_EQ(name_alone("f(int) ["), "f");
  EXPECT_EQ(name_alone("a>>b"), "a>>b");
  EXPECT_EQ(name_alone(""), "");
}

TEST(StackOwner, IsTheInnermostCallThatIsNotOurs) {
  const StackOwner owner =
      owner_of(stack_of({"cistern::allocate(unsigned long)", "float* cistern::DeviceBuffer<float>::make<int>(int)",
                         "net::Layer::forward(net::Tensor const&)", "net::Model::step()", "main"}),
               27);
  EXPECT_EQ(owner.function, "net::Layer::forward");
  EXPECT_EQ(owner.place, "net.cpp:2");
  EXPECT_EQ(owner.callers, "step, main");
}

TEST(StackOwner, OfOurOwnStacksIsTheInnermostCall) {
  const StackOwner owner = owner_of(stack_of({"cistern::allocate(unsigned long)"}), 27);
  EXPECT_EQ(owner.function, "cistern::allocate");
  EXPECT_EQ(owner.callers, "");
  EXPECT_EQ(owner_of({}, 27).function, "");
}

TEST(StackOwner, ScopesGoBeforeANameIsTooLong) {
  EXPECT_EQ(owner_of(stack_of({"first::second::third::function(int)"}), 20).function, "third::function");
  EXPECT_EQ(owner_of(stack_of({"first::second::third::function(int)"}), 3).function, "function");
}

}  // namespace
}  // namespace cistern
