#pragma once

// A StreamHeap with the room that it needs.

#include "allocator/stream_heap.h"

namespace cistern::testing {

struct RoomOfStreamHeap {
  StreamRoom room{};
};

struct RoomyStreamHeap : private RoomOfStreamHeap, public StreamHeap {
  RoomyStreamHeap() : StreamHeap(room) {}
};

}  // namespace cistern::testing
