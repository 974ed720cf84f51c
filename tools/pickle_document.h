#pragma once

// Reads Python's pickles as data: it runs nothing, imports nothing and makes no objects.
//
// Thread safety: a function of its arguments alone.

#include "tools/byte_source.h"
#include "tools/document.h"

namespace cistern {

// Whether the bytes that come next are those that a pickle of protocol 2 or newer begins with.
[[nodiscard]] bool begins_as_pickle(ByteSource& source);

// Reads all of `source` as one pickle of protocol 2 to 5 that is made of dicts with texts as keys, lists, tuples,
// texts, integers, floats, booleans and None, and of references among them. Shared objects stay shared.
// Memory: a small multiple of the pickle's size, whatever it says of lengths.
// Throws InvalidArgument "NAME: OPCODE at byte N: expected ..." for anything else: an opcode that makes an object
// of a class, calls a function or reads what is not in the file; damage; integers outside -2^63 to 2^64 - 1;
// text that is no UTF-8; more than Document::kMostLevels levels, which a container in itself would have; and
// references that would fill out to more than 64 values for each byte of the file.
[[nodiscard]] Document read_pickle_document(ByteSource& source);

}  // namespace cistern
