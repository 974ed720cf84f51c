#pragma once

// The version of docs/snapshot-schema.json, which our JSON says that it keeps to. A reader of one
// version may meet more members, never fewer.

namespace cistern {

inline constexpr int kSnapshotSchemaVersion = 1;

}  // namespace cistern
