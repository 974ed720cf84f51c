#pragma once

// Reads JSON of any size into a Document.
//
// Thread safety: a function of its arguments alone.

#include "tools/byte_source.h"
#include "tools/document.h"

namespace cistern {

// Reads all of `source` as one JSON value. Lists and objects below a member called frames, forward_frames,
// pool_id or segment_pool_id are kept once for all that are equal: in PyTorch's JSON the same stacks
// are written out again and again. Memory: the Document's, not the text's.
// Throws InvalidArgument "NAME:LINE: 'text': expected ..." for what is not JSON, integers outside
// -2^63 to 2^64 - 1, or more than Document::kMostLevels levels.
[[nodiscard]] Document read_json_document(ByteSource& source);

}  // namespace cistern
