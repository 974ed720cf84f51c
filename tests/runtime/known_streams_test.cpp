// Which handles stay theirs: what threads remember of it never outlives what was said.

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "runtime/known_streams.h"

namespace cistern {
namespace {

CUstream handle_of(std::uintptr_t number) { return reinterpret_cast<CUstream>(0x7f0000001000 + (number * 0x240)); }

class KnownStreamsTest : public ::testing::Test {
 protected:
  // The id; 0 where the handle is not known.
  static std::uint64_t id_of(const KnownStreams& streams, CUstream handle) {
    KnownStream known;
    return streams.find(handle, &known) ? known.id : 0;
  }
  std::uint64_t id_of(CUstream handle) const { return id_of(streams_, handle); }

  KnownStreams streams_;
};

TEST_F(KnownStreamsTest, NothingIsKnownThatNobodySaid) {
  EXPECT_EQ(id_of(handle_of(1)), 0U);
  EXPECT_EQ(id_of(handle_of(1)), 0U);
}

TEST_F(KnownStreamsTest, WhatIsAddedIsFoundWithItsDevice) {
  EXPECT_EQ(id_of(handle_of(1)), 0U);  // and that it was not there is forgotten
  ASSERT_TRUE(streams_.add({handle_of(1), 7}, 3));
  KnownStream known;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(streams_.find(handle_of(1), &known));
    EXPECT_EQ(known.id, 7U);
    EXPECT_EQ(known.device, 3);
  }
}

TEST_F(KnownStreamsTest, WhatIsRemovedIsForgotten) {
  streams_.add({handle_of(1), 7}, 0);
  ASSERT_EQ(id_of(handle_of(1)), 7U);
  streams_.remove(handle_of(1));
  EXPECT_EQ(id_of(handle_of(1)), 0U);
  streams_.remove(handle_of(1));
}

TEST_F(KnownStreamsTest, AHandleThatComesAgainIsTheNewStream) {
  streams_.add({handle_of(1), 7}, 0);
  ASSERT_EQ(id_of(handle_of(1)), 7U);
  streams_.add({handle_of(1), 8}, 0);
  EXPECT_EQ(id_of(handle_of(1)), 8U);
}

// More than a thread remembers.
TEST_F(KnownStreamsTest, ManyHandlesDoNotHideOneAnother) {
  constexpr std::uint64_t kStreams = 100;
  for (std::uint64_t i = 1; i <= kStreams; ++i) streams_.add({handle_of(i), i}, 0);
  for (int round = 0; round < 2; ++round)
    for (std::uint64_t i = 1; i <= kStreams; ++i) EXPECT_EQ(id_of(handle_of(i)), i);
}

// Another driver's streams may have the same handles.
TEST_F(KnownStreamsTest, WhatATableSaysIsNotAnothers) {
  const KnownStreams other;
  streams_.add({handle_of(1), 7}, 0);
  ASSERT_EQ(id_of(handle_of(1)), 7U);
  EXPECT_EQ(id_of(other, handle_of(1)), 0U);
  EXPECT_EQ(id_of(handle_of(1)), 7U);
}

TEST_F(KnownStreamsTest, ATableAtTheSamePlaceKnowsNothingOfTheOneBefore) {
  alignas(KnownStreams) std::byte place[sizeof(KnownStreams)];
  auto* first = new (place) KnownStreams;
  first->add({handle_of(1), 7}, 0);
  EXPECT_EQ(id_of(*first, handle_of(1)), 7U);
  first->~KnownStreams();
  auto* second = new (place) KnownStreams;
  EXPECT_EQ(id_of(*second, handle_of(1)), 0U);
  second->~KnownStreams();
}

TEST_F(KnownStreamsTest, WhatAnotherThreadRemovedIsForgotten) {
  streams_.add({handle_of(1), 7}, 0);
  ASSERT_EQ(id_of(handle_of(1)), 7U);
  std::thread([this] {
    EXPECT_EQ(id_of(handle_of(1)), 7U);
    streams_.remove(handle_of(1));
  }).join();
  EXPECT_EQ(id_of(handle_of(1)), 0U);
}

TEST_F(KnownStreamsTest, ThreadsThatLookWhileOthersComeAndGoFindWhatStays) {
  streams_.add({handle_of(0), 1}, 0);
  std::vector<std::thread> threads;
  for (std::uintptr_t thread = 1; thread <= 3; ++thread)
    threads.emplace_back([this, thread] {
      for (std::uint64_t id = 2; id < 500; ++id) {
        streams_.add({handle_of(thread), id}, 0);
        EXPECT_EQ(id_of(handle_of(thread)), id);
        EXPECT_EQ(id_of(handle_of(0)), 1U);
        streams_.remove(handle_of(thread));
        EXPECT_EQ(id_of(handle_of(thread)), 0U);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cistern
