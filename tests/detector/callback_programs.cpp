// Host functions and callbacks: what they may not do.

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

struct Call {
  World& world;
  std::function<void(World&)> call;
};

// Runs `call` in a host function, or, mended, after it.
void call_in_a_host_function(World& w, std::function<void(World&)> call) {
  const StreamHandle stream = w.stream();
  Call inside{w, std::move(call)};
  const auto run = [](void* data) {
    const auto* called = static_cast<Call*>(data);
    if (!called->world.is_mended) called->call(called->world);
  };
  EXPECT_EQ(w.api.launch_host_func(stream, run, &inside), CUDA_SUCCESS);
  w.synchronize(stream);
  if (w.is_mended) inside.call(w);
}

void callback_that_synchronizes(World& w) {
  call_in_a_host_function(w, [](World& world) { static_cast<void>(world.api.ctx_synchronize()); });
}

void callback_that_allocates(World& w) {
  call_in_a_host_function(w, [](World& world) {
    CUdeviceptr memory = 0;
    static_cast<void>(world.api.mem_alloc(&memory, 4 * KiB));
  });
}

void callback_that_queues_work(World& w) {
  const auto memory = reinterpret_cast<CUdeviceptr>(w.allocate());
  call_in_a_host_function(
      w, [memory](World& world) { static_cast<void>(world.api.memset_d8_async(memory, 1, 4 * KiB, nullptr)); });
}

void callback_that_queries_an_event(World& w) {
  const CUevent event = w.event();
  call_in_a_host_function(w, [event](World& world) { static_cast<void>(world.api.event_query(event)); });
}

}  // namespace

std::vector<Program> callback_programs() {
  constexpr RaceKind kind = RaceKind::callback_calls_driver;
  return {
      {"CallbackThatSynchronizes", kind, callback_that_synchronizes},
      {"CallbackThatAllocates", kind, callback_that_allocates},
      {"CallbackThatQueuesWork", kind, callback_that_queues_work},
      {"CallbackThatQueriesAnEvent", kind, callback_that_queries_an_event},
  };
}

}  // namespace cistern::testing
