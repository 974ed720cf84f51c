// A block in the hands of another process: the receiver opens what the sender's handle names, reads and writes it, and
// lets go; the sender may free meanwhile.
//   CISTERN_DEVICE=simulated:races=report cistern_other_process     (or cuda)

#include <cistern/cistern.h>

#include <array>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

namespace {

constexpr std::size_t kCount = std::size_t{1} << 18;

// Started anew, since no driver works in a forked child; the handle comes on standard input.
int receive() {
  cistern::MemoryHandle::Bytes bytes{};
  if (std::fread(bytes.data(), 1, bytes.size(), stdin) != bytes.size()) return 1;
  cistern::IpcMemory memory = cistern::open_ipc(cistern::MemoryHandle::from_bytes(bytes.data(), bytes.size()));
  std::array<unsigned, kCount> values{};
  cistern::copy_async(values.data(), memory.data(), sizeof values);
  cistern::current_stream().synchronize();
  cistern::fill32_async(memory.data(), values.back() + 1, kCount);
  memory.release();  // waits for the fill, then tells the sender
  std::printf("the receiver read %u and wrote %u\n", values.back(), values.back() + 1);
  return 0;
}

int send(const std::string& program) {
  const cistern::MemPool shared;  // whose memory can be sent under any policy
  std::optional<cistern::MemPoolGuard> serves(shared);
  void* const block = cistern::allocate(kCount * sizeof(unsigned));
  void* const freed = cistern::allocate(kCount * sizeof(unsigned));
  serves.reset();
  cistern::fill32_async(block, 41, kCount);
  cistern::fill32_async(freed, 1, kCount);
  cistern::current_stream().synchronize();  // what receivers read is written
  const auto handle = cistern::send_memory(block).to_bytes();
  const cistern::MemoryHandle nobodys = cistern::send_memory(freed);
  cistern::deallocate(freed);
  std::printf("freed, and kept for a receiver: %zu bytes\n", cistern::ipc_collect().bytes);
  cistern::recall_memory(nobodys);  // nobody will open it

  std::FILE* const receiver = popen((program + " receive").c_str(), "w");
  if (receiver == nullptr) return 1;
  std::fwrite(handle.data(), 1, handle.size(), receiver);
  if (pclose(receiver) != 0) return 1;
  unsigned value = 0;
  cistern::copy_async(&value, block, sizeof value);
  cistern::current_stream().synchronize();
  std::printf("the sender reads %u\n", value);
  cistern::deallocate(block);
  return value == 42 && cistern::ipc_collect().handles == 0 && cistern::memory_allocated() == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) try {
  return count == 2 ? receive() : send(arguments[0]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
