#include "trace.h"

#include <sstream>
#include <string>

namespace cistern::demo {

AllocationTrace::Entry& AllocationTrace::Entry::operator=(Entry&& other) noexcept {
  if (this != &other) {
    end();
    trace_ = std::exchange(other.trace_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void AllocationTrace::Entry::used_on(const Stream& stream) const {
  if (trace_ != nullptr) trace_->out_ << "r " << id_ << ' ' << trace_->number_of(stream) << '\n';
}

void AllocationTrace::Entry::end() noexcept {
  // A stream that was told to throw must not end the program from a destructor; whoever closes
  // the file sees that it failed.
  try {
    if (trace_ != nullptr) trace_->out_ << "f " << id_ << '\n';
  } catch (...) {
    trace_->out_.setstate(std::ios::badbit);
  }
  trace_ = nullptr;
}

AllocationTrace::AllocationTrace(std::ostream& out, const char* header) : out_(out) {
  std::istringstream lines(header);
  for (std::string line; std::getline(lines, line);) out_ << "# " << line << '\n';
  streams_.emplace(Stream(), 0);
}

AllocationTrace::Entry AllocationTrace::allocated(std::size_t bytes, const Stream& stream) {
  const std::uint64_t id = next_id_++;
  out_ << "a " << id << ' ' << bytes << ' ' << number_of(stream) << '\n';
  return Entry(*this, id);
}

void AllocationTrace::end_step() { out_ << "i\n"; }

int AllocationTrace::number_of(const Stream& stream) {
  return streams_.try_emplace(stream, static_cast<int>(streams_.size())).first->second;
}

}  // namespace cistern::demo
