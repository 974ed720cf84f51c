#pragma once

// Compressed output, as gzip.
//
// The library does not depend on zlib: it is loaded when somebody asks for a compressed file.

#include <functional>
#include <iosfwd>
#include <string>

namespace cistern {

// Compresses what `write` writes into `out`, in pieces, on several threads: one gzip member.
// Throws NotSupported where zlib cannot be loaded, std::bad_alloc; what `write` throws passes.
void write_gzip(std::ostream& out, const std::function<void(std::ostream&)>& write);

// As write_file, compressed if the path ends in ".gz".
void write_plain_or_gzip(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace cistern
