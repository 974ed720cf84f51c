#include "tests/conformance/driver_case.h"

#include <algorithm>
#include <chrono>

#include "runtime/process_driver.h"

namespace cistern::conformance {

const DriverApi& driver_under_test() { return process_driver(); }

std::string name_of(CUresult result) {
  const char* name = nullptr;
  const CUresult known = driver_under_test().get_error_name(result, &name);
  return known == CUDA_SUCCESS && name != nullptr ? name : "CUresult " + std::to_string(result);
}

::testing::AssertionResult came_as_expected(const char*, const char* call, CUresult expected, CUresult came) {
  if (expected == came) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected " << name_of(expected) << ", came " << name_of(came) << " from "
                                       << call;
}

// --- Gate and log -----------------------------------------------------------------------

void Gate::open() {
  const std::lock_guard lock(mutex_);
  is_open_ = true;
  changed_.notify_all();
}

void Gate::pass() {
  std::unique_lock lock(mutex_);
  ++arrivals_;
  if (!changed_.wait_for(lock, std::chrono::minutes(1), [this] { return is_open_; })) {
    ADD_FAILURE() << "a gate stayed closed for a minute: somebody waits for what it holds up";
  }
}

int Gate::arrivals() {
  const std::lock_guard lock(mutex_);
  return arrivals_;
}

void Log::add(int number) {
  const std::lock_guard lock(mutex_);
  numbers_.push_back(number);
}

std::vector<int> Log::numbers() {
  const std::lock_guard lock(mutex_);
  return numbers_;
}

// --- The case ---------------------------------------------------------------------------

DriverCase::DriverCase() : api(driver_under_test()) {}

void DriverCase::SetUp() {
  ASSERT_OK(api.device_get(&device, 0));
  ASSERT_OK(api.primary_ctx_retain(&context, device));
  ASSERT_OK(api.ctx_set_current(context));
  ASSERT_OK(api.stream_create_with_priority(&reader_, CU_STREAM_NON_BLOCKING, 0));
}

void DriverCase::TearDown() {
  for (Gate& gate : gates_) gate.open();
  if (context == nullptr) return;
  EXPECT_OK(api.ctx_set_current(context));
  EXPECT_OK(api.ctx_synchronize());
  give_back();
  for (const CUevent event : events_) EXPECT_OK(api.event_destroy(event));
  for (const CUstream stream : streams_) EXPECT_OK(api.stream_destroy(stream));
  for (const CUdeviceptr memory : memory_) EXPECT_OK(api.mem_free(memory));
  EXPECT_OK(api.stream_destroy(reader_));
  if (second_ != nullptr) {
    CUdevice second = 0;
    EXPECT_OK(api.device_get(&second, 1));
    EXPECT_OK(api.primary_ctx_release(second));
  }
  EXPECT_OK(api.primary_ctx_release(device));
}

CUstream DriverCase::make_stream(unsigned flags, int priority) {
  CUstream stream = nullptr;
  EXPECT_OK(api.stream_create_with_priority(&stream, flags, priority));
  if (stream != nullptr) streams_.push_back(stream);
  return stream;
}

CUevent DriverCase::make_event(unsigned flags) {
  CUevent event = nullptr;
  EXPECT_OK(api.event_create(&event, flags));
  if (event != nullptr) events_.push_back(event);
  return event;
}

CUdeviceptr DriverCase::make_memory(std::size_t bytes) {
  CUdeviceptr memory = 0;
  EXPECT_OK(api.mem_alloc(&memory, bytes));
  if (memory == 0) return 0;
  memory_.push_back(memory);
  fill(memory, 0, bytes, reader_);
  finish(reader_);
  return memory;
}

Gate& DriverCase::make_gate() { return gates_.emplace_back(); }

Gate& DriverCase::hold(CUstream stream) {
  Gate& gate = make_gate();
  pass(stream, gate);
  return gate;
}

void DriverCase::pass(CUstream stream, Gate& gate) {
  EXPECT_OK(api.launch_host_func(
      stream, [](void* data) { static_cast<Gate*>(data)->pass(); }, &gate));
}

void DriverCase::note(CUstream stream, int number) {
  Note& written = notes_.emplace_back(Note{&log, number});
  EXPECT_OK(api.launch_host_func(
      stream,
      [](void* data) {
        const Note& note = *static_cast<Note*>(data);
        note.log->add(note.number);
      },
      &written));
}

void DriverCase::fill(CUdeviceptr memory, unsigned char value, std::size_t bytes, CUstream stream) {
  EXPECT_OK(api.memset_d8_async(memory, value, bytes, stream));
}

void DriverCase::copy(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  EXPECT_OK(api.memcpy_async(destination, source, bytes, stream));
}

void DriverCase::record(CUevent event, CUstream stream) { EXPECT_OK(api.event_record(event, stream)); }
void DriverCase::wait(CUstream stream, CUevent event) { EXPECT_OK(api.stream_wait_event(stream, event, 0)); }
void DriverCase::finish(CUstream stream) { EXPECT_OK(api.stream_synchronize(stream)); }

std::vector<unsigned char> DriverCase::read(CUdeviceptr memory, std::size_t bytes) {
  std::vector<unsigned char> result(bytes);
  copy(reinterpret_cast<CUdeviceptr>(result.data()), memory, bytes, reader_);
  finish(reader_);
  return result;
}

::testing::AssertionResult DriverCase::holds(CUdeviceptr memory, std::size_t bytes, unsigned char value) {
  const std::vector<unsigned char> found = read(memory, bytes);
  const auto other = std::find_if(found.begin(), found.end(), [&](unsigned char byte) { return byte != value; });
  if (other == found.end()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "byte " << other - found.begin() << " of " << bytes << ": expected "
                                       << int{value} << ", came " << int{*other};
}

CUcontext DriverCase::second_context() {
  int count = 0;
  EXPECT_OK(api.device_get_count(&count));
  if (second_ != nullptr || count < 2) return second_;
  CUdevice second = 0;
  EXPECT_OK(api.device_get(&second, 1));
  EXPECT_OK(api.primary_ctx_retain(&second_, second));
  return second_;
}

}  // namespace cistern::conformance
