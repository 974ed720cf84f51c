#pragma once

// An output stream that compresses what is written to it into another, as gzip does.
//
// Not thread-safe.

#include <memory>
#include <ostream>

namespace cistern {

class GzipStream : public std::ostream {
 public:
  // `target` must outlive the stream.
  explicit GzipStream(std::ostream& target);
  ~GzipStream() override;
  // Writes what is left and the trailer: without it the result is cut short. The state tells
  // whether all could be written; nothing may be written afterwards.
  void finish();

 private:
  class Buffer;
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace cistern
