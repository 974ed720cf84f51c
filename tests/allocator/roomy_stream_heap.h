#pragma once

// A StreamHeap with the room that it needs.

#include "allocator/growing_table.h"
#include "allocator/stream_heap.h"

namespace cistern::testing {

struct RoomOfStreamHeap {
  GrowingTable<StreamRoom> room{1};
};

struct RoomyStreamHeap : private RoomOfStreamHeap, public StreamHeap {
  RoomyStreamHeap() : StreamHeap(room[0]) {}
};

}  // namespace cistern::testing
