// Events between processes that were started separately.

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/ipc/peer_process.h"
#include "tests/simulated/driver_fixture.h"

namespace cistern::testing {
namespace {

using Kind = PeerProcess::Kind;

std::string error(CUresult code) { return "error " + std::to_string(static_cast<int>(code)); }
const std::string kNotReady = error(CUDA_ERROR_NOT_READY);

class EventHandles : public ::testing::Test {
 protected:
  static constexpr unsigned kShareable = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;

  std::string text_of(CUevent event) {
    CUipcEventHandle handle{};
    EXPECT_EQ(own.api.ipc_get_event_handle(&handle, event), CUDA_SUCCESS);
    return to_hex(&handle, sizeof handle);
  }
  CUevent open(const std::string& text) {
    const auto bytes = from_hex(text);
    CUipcEventHandle handle{};
    EXPECT_EQ(bytes.size(), sizeof handle) << text;
    if (bytes.size() == sizeof handle) std::memcpy(&handle, bytes.data(), sizeof handle);
    CUevent event = nullptr;
    EXPECT_EQ(own.api.ipc_open_event_handle(&event, handle), CUDA_SUCCESS);
    return event;
  }
  // An event of ours with a record that is pending on `stream`.
  CUevent record_pending(CUstream stream) {
    const CUevent event = own.create_event(kShareable);
    own.driver.occupy(stream, std::chrono::milliseconds(1));
    EXPECT_EQ(own.api.event_record(event, stream), CUDA_SUCCESS);
    return event;
  }

  // A graph that records the event so many times, one record after the other.
  CUgraphExec graph_of_records(CUevent event, int records) {
    const CUstream stream = own.driver.create_stream();
    EXPECT_EQ(own.api.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    for (int i = 0; i < records; ++i) {
      EXPECT_EQ(own.api.event_record_with_flags(event, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
    }
    CUgraph graph = nullptr;
    EXPECT_EQ(own.api.stream_end_capture(stream, &graph), CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    EXPECT_EQ(own.api.graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
    return exec;
  }

  static constexpr int kPending = 256;  // records of one event that may be unfinished
  ReadyDriver own;
  PeerProcess peer{Kind::driver, "capacity=256MiB"};
};

TEST_F(EventHandles, AsManyRecordsArePendingAsTheTableHoldsAndNoMore) {
  const CUstream stream = own.driver.create_stream();
  const CUevent event = record_pending(stream);
  const std::string theirs = std::to_string(peer.ask_number("open_event " + text_of(event)));
  const std::string waiting = std::to_string(peer.ask_number("stream"));
  ASSERT_EQ(peer.ask("wait " + waiting + " " + theirs), "ok");
  for (int i = 1; i < kPending; ++i) ASSERT_EQ(own.api.event_record(event, stream), CUDA_SUCCESS) << i;

  EXPECT_EQ(own.api.event_record(event, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(peer.ask("query_stream " + waiting), kNotReady) << "it waits for the first record";
  own.driver.run_until_idle();
  EXPECT_EQ(peer.ask("synchronize_stream " + waiting), "ok");
  EXPECT_EQ(own.api.event_record(event, stream), CUDA_SUCCESS) << "there is room again";
}

TEST_F(EventHandles, AGraphIsLaunchedOnlyIfThereIsRoomForAllItsRecords) {
  const CUstream stream = own.driver.create_stream();
  const CUevent event = record_pending(stream);
  const std::string theirs = std::to_string(peer.ask_number("open_event " + text_of(event)));
  const std::string waiting = std::to_string(peer.ask_number("stream"));
  ASSERT_EQ(peer.ask("wait " + waiting + " " + theirs), "ok");

  EXPECT_EQ(own.api.graph_launch(graph_of_records(event, kPending), stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(own.api.graph_launch(graph_of_records(event, kPending + 1), stream), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(own.api.graph_launch(graph_of_records(event, kPending - 1), stream), CUDA_SUCCESS);
  EXPECT_EQ(own.api.event_record(event, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(peer.ask("query_stream " + waiting), kNotReady);
  EXPECT_EQ(peer.ask("query " + theirs), kNotReady);
  own.driver.run_until_idle();
  EXPECT_EQ(peer.ask("query " + theirs), "ok");
  EXPECT_EQ(peer.ask("synchronize_stream " + waiting), "ok");
}

TEST_F(EventHandles, ARecordThatNeverEndsTakesNoRoomOnceItsProcessHasDied) {
  const CUevent event = own.create_event(kShareable);
  const std::string theirs = std::to_string(peer.ask_number("open_event " + text_of(event)));
  const std::string stream = std::to_string(peer.ask_number("stream"));
  ASSERT_EQ(peer.ask("occupy " + stream), "ok");
  ASSERT_EQ(peer.ask("record " + theirs + " " + stream), "ok");
  const CUstream idle = own.driver.create_stream();
  for (int i = 1; i < kPending; ++i) ASSERT_EQ(own.api.event_record(event, idle), CUDA_SUCCESS) << i;
  EXPECT_EQ(own.api.event_record(event, idle), CUDA_ERROR_OUT_OF_MEMORY);
  peer.kill();
  EXPECT_EQ(own.api.event_record(event, idle), CUDA_SUCCESS);
}

TEST_F(EventHandles, AnEventIsCompleteElsewhereUntilItIsRecorded) {
  const CUevent event = own.create_event(kShareable);
  const std::string theirs = std::to_string(peer.ask_number("open_event " + text_of(event)));
  EXPECT_EQ(peer.ask("query " + theirs), "ok");
  EXPECT_EQ(peer.ask("synchronize " + theirs), "ok");

  const CUstream stream = own.driver.create_stream();
  own.driver.occupy(stream, std::chrono::milliseconds(1));
  ASSERT_EQ(own.api.event_record(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(peer.ask("query " + theirs), kNotReady);
  own.driver.run_until_idle();
  EXPECT_EQ(peer.ask("query " + theirs), "ok");
}

TEST_F(EventHandles, ARecordThatWasPendingAtTheExportIsSeen) {
  const CUevent event = record_pending(own.driver.create_stream());
  const std::string theirs = std::to_string(peer.ask_number("open_event " + text_of(event)));
  EXPECT_EQ(peer.ask("query " + theirs), kNotReady);
  own.driver.run_until_idle();
  EXPECT_EQ(peer.ask("query " + theirs), "ok");
}

TEST_F(EventHandles, AStreamElsewhereWaitsForTheRecord) {
  const CUevent event = record_pending(own.driver.create_stream());
  const std::string theirs = std::to_string(peer.ask_number("open_event " + text_of(event)));
  const std::string stream = std::to_string(peer.ask_number("stream"));
  const std::string other = std::to_string(peer.ask_number("stream"));
  ASSERT_EQ(peer.ask("wait " + stream + " " + theirs), "ok");
  ASSERT_EQ(peer.ask("occupy " + stream), "ok");
  ASSERT_EQ(peer.ask("occupy " + other), "ok");

  EXPECT_EQ(peer.ask("step"), "stepped") << "the other stream is not held up";
  EXPECT_EQ(peer.ask("step"), "nothing");
  EXPECT_EQ(peer.ask("query_stream " + other), "ok");
  EXPECT_EQ(peer.ask("query_stream " + stream), kNotReady);
  peer.tell("synchronize_stream " + stream);  // blocks there
  own.driver.run_until_idle();
  EXPECT_EQ(peer.answer(), "ok");
}

TEST_F(EventHandles, AHostElsewhereWaitsForTheRecord) {
  const CUevent event = record_pending(own.driver.create_stream());
  const std::string theirs = std::to_string(peer.ask_number("open_event " + text_of(event)));
  peer.tell("synchronize " + theirs);
  own.driver.run_until_idle();
  EXPECT_EQ(peer.answer(), "ok");
}

// Whoever returned too soon would find the event unfinished in some round: the peer has yet to read
// that it is to step.
TEST_F(EventHandles, AHostThatWaitedFindsTheRecordComplete) {
  const CUevent event = own.create_event(kShareable);
  const std::string theirs = std::to_string(peer.ask_number("open_event " + text_of(event)));
  const std::string stream = std::to_string(peer.ask_number("stream"));
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(peer.ask("occupy " + stream), "ok");
    ASSERT_EQ(peer.ask("record " + theirs + " " + stream), "ok");
    peer.tell("step");
    EXPECT_EQ(own.api.event_synchronize(event), CUDA_SUCCESS);
    EXPECT_EQ(own.api.event_query(event), CUDA_SUCCESS);
    EXPECT_EQ(peer.answer(), "stepped");
  }
}

TEST_F(EventHandles, TheOpenerMayRecordAndTheExporterWait) {
  const CUevent event = own.create_event(kShareable);
  const std::string theirs = std::to_string(peer.ask_number("open_event " + text_of(event)));
  const std::string stream = std::to_string(peer.ask_number("stream"));
  ASSERT_EQ(peer.ask("occupy " + stream), "ok");
  ASSERT_EQ(peer.ask("record " + theirs + " " + stream), "ok");

  EXPECT_EQ(own.api.event_query(event), CUDA_ERROR_NOT_READY);
  std::vector<int> order;
  const CUstream waiting = own.driver.create_stream();
  ASSERT_EQ(own.api.stream_wait_event(waiting, event, 0), CUDA_SUCCESS);
  own.note(waiting, order, 1);
  EXPECT_FALSE(own.driver.step());
  EXPECT_TRUE(order.empty());
  peer.tell("step");
  EXPECT_EQ(own.api.stream_synchronize(waiting), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
  EXPECT_EQ(peer.answer(), "stepped");
  EXPECT_EQ(own.api.event_query(event), CUDA_SUCCESS);
}

TEST_F(EventHandles, RecordingAgainReplacesWhatIsSeenAndEarlierWaitsKeepWhatTheyWaitFor) {
  const CUevent event = open(peer.ask("event_handle " + std::to_string(peer.ask_number("event"))));
  const std::string exported = std::to_string(peer.ask_number("event"));
  const CUevent ours = open(peer.ask("event_handle " + exported));
  const std::string first = std::to_string(peer.ask_number("stream"));
  const std::string second = std::to_string(peer.ask_number("stream"));
  peer.ask("occupy " + first);
  peer.ask("record " + exported + " " + first);
  const CUstream early = own.driver.create_stream();
  ASSERT_EQ(own.api.stream_wait_event(early, ours, 0), CUDA_SUCCESS);
  std::vector<int> order;
  own.note(early, order, 1);
  peer.ask("occupy " + second);
  peer.ask("record " + exported + " " + second);

  ASSERT_EQ(peer.ask("synchronize_stream " + second), "ok");
  EXPECT_EQ(own.api.event_query(ours), CUDA_SUCCESS) << "the latest record is done";
  EXPECT_EQ(own.api.stream_query(early), CUDA_ERROR_NOT_READY) << "the earlier one is not";
  EXPECT_FALSE(own.driver.step());
  ASSERT_EQ(peer.ask("synchronize_stream " + first), "ok");
  EXPECT_EQ(own.api.stream_synchronize(early), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
  EXPECT_EQ(own.api.event_query(event), CUDA_SUCCESS);
}

TEST_F(EventHandles, ARecorderThatDiesLeavesItsRecordComplete) {
  const std::string exported = std::to_string(peer.ask_number("event"));
  const CUevent ours = open(peer.ask("event_handle " + exported));
  const std::string stream = std::to_string(peer.ask_number("stream"));
  peer.ask("occupy " + stream);
  peer.ask("record " + exported + " " + stream);
  std::vector<int> order;
  const CUstream waiting = own.driver.create_stream();
  ASSERT_EQ(own.api.stream_wait_event(waiting, ours, 0), CUDA_SUCCESS);
  own.note(waiting, order, 1);
  ASSERT_EQ(own.api.event_query(ours), CUDA_ERROR_NOT_READY);
  peer.kill();
  EXPECT_EQ(own.api.event_synchronize(ours), CUDA_SUCCESS);
  EXPECT_EQ(own.api.stream_synchronize(waiting), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
}

TEST_F(EventHandles, ADestroyedEventIsCompleteAndOpensNoMore) {
  const std::string exported = std::to_string(peer.ask_number("event"));
  const std::string handle = peer.ask("event_handle " + exported);
  const CUevent ours = open(handle);
  const std::string stream = std::to_string(peer.ask_number("stream"));
  peer.ask("occupy " + stream);
  peer.ask("record " + exported + " " + stream);
  ASSERT_EQ(peer.ask("destroy_event " + exported), "ok");
  EXPECT_EQ(own.api.event_synchronize(ours), CUDA_SUCCESS);
  PeerProcess third(Kind::driver, "capacity=256MiB");
  EXPECT_EQ(third.ask("open_event " + handle), error(CUDA_ERROR_MAP_FAILED));
}

TEST_F(EventHandles, AnEventInThePlaceOfADestroyedOneBeginsAnew) {
  const CUevent gone = record_pending(own.driver.create_stream());
  text_of(gone);
  ASSERT_EQ(own.api.event_destroy(gone), CUDA_SUCCESS);
  const CUevent event = own.create_event(kShareable);
  const std::string theirs = std::to_string(peer.ask_number("open_event " + text_of(event)));
  EXPECT_EQ(peer.ask("query " + theirs), "ok") << "the other's record is pending still";
}

TEST_F(EventHandles, OnlyInterprocessEventsWithoutTimingAreExported) {
  CUipcEventHandle handle{};
  EXPECT_EQ(own.api.ipc_get_event_handle(&handle, own.create_event()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(own.api.ipc_get_event_handle(&handle, own.create_event(CU_EVENT_DISABLE_TIMING)),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(own.api.ipc_get_event_handle(&handle, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(own.api.ipc_get_event_handle(nullptr, own.create_event(kShareable)), CUDA_ERROR_INVALID_VALUE);
  CUevent event = nullptr;
  EXPECT_EQ(own.api.ipc_open_event_handle(&event, handle), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(own.api.ipc_get_event_handle(&handle, own.create_event(kShareable)), CUDA_SUCCESS);
  EXPECT_EQ(own.api.ipc_open_event_handle(&event, handle), CUDA_ERROR_INVALID_CONTEXT) << "its own process";
}

TEST_F(EventHandles, AnOpenedEventHasNoTime) {
  const CUevent ours = open(peer.ask("event_handle " + std::to_string(peer.ask_number("event"))));
  ASSERT_EQ(own.api.event_record(ours, nullptr), CUDA_SUCCESS);
  float milliseconds = 0;
  EXPECT_EQ(own.api.event_elapsed_time(&milliseconds, ours, ours), CUDA_ERROR_INVALID_HANDLE);
}

// Two processes that run by themselves hand a turn to and fro.
TEST(FreeRunningEvents, TwoProcessesPassATurn) {
  ReadyDriver own({.capacity_bytes = 256 * MiB, .drive = Drive::free});
  PeerProcess peer(Kind::driver, "capacity=256MiB,drive=free");
  const CUevent ours = own.create_event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  CUipcEventHandle handle{};
  ASSERT_EQ(own.api.ipc_get_event_handle(&handle, ours), CUDA_SUCCESS);
  const std::string event = std::to_string(peer.ask_number("open_event " + to_hex(&handle, sizeof handle)));
  const std::string theirs = std::to_string(peer.ask_number("stream"));
  const CUstream stream = own.driver.create_stream();
  for (int turn = 0; turn < 50; ++turn) {
    own.driver.occupy(stream, std::chrono::microseconds(1));
    ASSERT_EQ(own.api.event_record(ours, stream), CUDA_SUCCESS);
    ASSERT_EQ(peer.ask("wait " + theirs + " " + event), "ok");
    ASSERT_EQ(peer.ask("occupy " + theirs), "ok");
    ASSERT_EQ(peer.ask("record " + event + " " + theirs), "ok");
    ASSERT_EQ(own.api.stream_wait_event(stream, ours, 0), CUDA_SUCCESS);
  }
  EXPECT_EQ(own.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(peer.ask("query " + event), "ok");
}

}  // namespace
}  // namespace cistern::testing
