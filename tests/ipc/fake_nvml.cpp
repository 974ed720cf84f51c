// A library with NVML's entries that the process list needs (NVML API Reference Guide).
//
// CISTERN_FAKE_NVML_INIT        what nvmlInit_v2 answers (default 0, success)
// CISTERN_FAKE_NVML_PROCESSES   how many processes run on each device (default 0): numbers 1000 and
//                               up, the highest first, each with its number in MiB. The memory of the
//                               one with the highest number is not known.
// Each time that the list is asked for, one process more has come.

#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

unsigned asked = 0;

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

#define CISTERN_NVML extern "C" __attribute__((visibility("default")))

CISTERN_NVML int nvmlInit_v2() { return number_of("CISTERN_FAKE_NVML_INIT"); }

CISTERN_NVML const char* nvmlErrorString(int result) { return result == 9 ? "Driver Not Loaded" : "Another Error"; }

// A UUID is "GPU-" and 8, 4, 4, 4 and 12 hexadecimal digits.
CISTERN_NVML int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  constexpr const char* form = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (std::strlen(uuid) != std::strlen(form)) return kNotFound;
  for (std::size_t i = 4; form[i] != '\0'; ++i) {
    const bool fits =
        form[i] == '-' ? uuid[i] == '-' : uuid[i] != '\0' && std::strchr("0123456789abcdef", uuid[i]) != nullptr;
    if (!fits) return kNotFound;
  }
  *device = &asked;
  return std::strncmp(uuid, form, 4) == 0 ? kSuccess : kNotFound;
}

CISTERN_NVML int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* infos) {
  if (device != &asked) return kInvalidArgument;
  const auto first = static_cast<unsigned>(number_of("CISTERN_FAKE_NVML_PROCESSES"));
  const unsigned running = first == 0 ? 0 : first + asked++;
  const unsigned room = *count;
  *count = running;
  if (room < running) return kInsufficientSize;
  for (unsigned i = 0; i < running; ++i) {
    const unsigned id = 1000 + running - 1 - i;
    infos[i] = {id, i == 0 ? ~0ULL : 1048576ULL * id, 0, 0};
  }
  return kSuccess;
}
