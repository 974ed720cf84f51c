// How close do the collectives come to the peer-copy bound? In virtual time, on four simulated devices with the
// bandwidths of a settings text: what each takes, against its largest copy between two devices alone. The figures are
// the same in every run and on every machine.
//
//   cistern_comm_bench [settings]

#include <cistern/cistern.h>
#include <cistern/simulated.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace cistern {
namespace {

constexpr int kDevices = 4;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::chrono::nanoseconds now() {
  simulated::driver().run_until_idle();
  std::chrono::nanoseconds latest{};
  for (int device = 0; device < kDevices; ++device) latest = std::max(latest, simulated::driver().virtual_time(device));
  return latest;
}

// Of the second time: peers are known then, and memory is cached.
double microseconds_of(const std::function<void()>& call) {
  call();
  const auto before = now();
  call();
  return std::chrono::duration<double, std::micro>(now() - before).count();
}

Tensor on(int device, const std::vector<std::int64_t>& shape) { return Tensor::empty(shape, DType::float32, device); }

struct Row {
  const char* name;
  std::int64_t link_bytes;  // the most that goes from one device to another
  std::function<void()> call;
};

void print(const Row& row, double bandwidth) {
  const double took = microseconds_of(row.call);
  const double bound = static_cast<double>(row.link_bytes) / bandwidth * 1e6;
  std::printf("| %s | %lld | %.1f | %.1f | %.1f | %.1f %% |\n", row.name, static_cast<long long>(row.link_bytes / kMiB),
              bound, took, static_cast<double>(row.link_bytes) / took * 1e6 / static_cast<double>(1 << 30),
              bound / took * 100);
}

void run() {
  const std::vector<Device> others{1, 2, 3};
  const Tensor whole = on(0, {8192, 8192});  // 256 MiB
  const TensorView turned = whole.view().transpose(0, 1);
  std::vector<Tensor> small;
  for (int i = 0; i < 1024; ++i) small.push_back(on(0, {256, 256}));  // 256 KiB each
  const std::vector<TensorView> smalls(small.begin(), small.end());
  std::vector<Tensor> spread;
  for (int device = 0; device < kDevices; ++device) spread.push_back(on(device, {8192, 8192}));
  const std::vector<TensorView> inputs(spread.begin(), spread.end());
  const std::vector<TensorView> far(inputs.begin() + 1, inputs.end());

  const double bandwidth = [&] {
    const Tensor target = on(1, {8192, 8192});
    const double took = microseconds_of(
        [&] { copy_peer_async(target.data(), 1, whole.data(), 0, whole.view().bytes(), default_stream(0)); });
    return static_cast<double>(whole.view().bytes()) / took * 1e6;
  }();
  std::printf("one peer copy of 256 MiB: %.1f GiB/s\n\n", bandwidth / static_cast<double>(1 << 30));
  std::printf("| collective | MiB a link | peer copy, us | takes, us | GiB/s a link | of the bound |\n");
  std::printf("| --- | --- | --- | --- | --- | --- |\n");
  const std::vector<Row> rows = {
      {"broadcast of 256 MiB to 1", 256 * kMiB, [&] { static_cast<void>(comm::broadcast(whole, {1})); }},
      {"broadcast of 256 MiB to 3", 256 * kMiB, [&] { static_cast<void>(comm::broadcast(whole, others)); }},
      {"broadcast of 256 MiB to 3, transposed", 256 * kMiB,
       [&] { static_cast<void>(comm::broadcast(turned, others)); }},
      {"broadcast_coalesced of 1,024 x 256 KiB to 3", 256 * kMiB,
       [&] { static_cast<void>(comm::broadcast_coalesced(smalls, others)); }},
      {"1,024 broadcasts of 256 KiB to 3", 256 * kMiB,
       [&] {
         for (const TensorView& each : smalls) static_cast<void>(comm::broadcast(each, others));
       }},
      {"reduce_add of 4 x 256 MiB", 256 * kMiB, [&] { static_cast<void>(comm::reduce_add(inputs)); }},
      {"scatter of 256 MiB to 3, dim 0", 256 * kMiB / 3, [&] { static_cast<void>(comm::scatter(whole, others)); }},
      {"scatter of 256 MiB to 3, dim 1", 256 * kMiB / 3,
       [&] { static_cast<void>(comm::scatter(whole, others, std::nullopt, 1)); }},
      {"gather of 3 x 256 MiB, dim 0", 256 * kMiB, [&] { static_cast<void>(comm::gather(far)); }},
      {"gather of 3 x 256 MiB, dim 1", 256 * kMiB, [&] { static_cast<void>(comm::gather(far, 1)); }},
  };
  for (const Row& row : rows) print(row, bandwidth);
}

}  // namespace
}  // namespace cistern

int main(int count, char** arguments) {
  const std::string settings = count > 1 ? arguments[1] : "peer_bandwidth=400GiB,memory_bandwidth=3000GiB";
  setenv("CISTERN_DEVICE", ("simulated:devices=4,capacity=16GiB,backing=none," + settings).c_str(), 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  try {
    cistern::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cistern_comm_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
