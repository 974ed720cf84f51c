// A program that loads the library by hand, as plugins are: cistern_loader LIBRARY STORY. It is linked to nothing of
// it.

#include <cistern/c_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

struct Library {
  explicit Library(const char* path) : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::_Exit(3);
    }
    find(allocate, "cistern_allocate");
    find(deallocate, "cistern_deallocate");
    find(memory_allocated, "cistern_memory_allocated");
    find(last_error, "cistern_last_error");
  }
  void close() const {
    if (dlclose(handle) != 0) std::fprintf(stderr, "dlclose: %s\n", dlerror());
  }
  // Allocates and frees; an error ends the process.
  void use() const {
    void* pointer = nullptr;
    check(allocate(1 << 20, 0, nullptr, &pointer));
    check(deallocate(pointer));
  }
  void check(cistern_status status) const {
    if (status == CISTERN_SUCCESS) return;
    std::fprintf(stderr, "%s\n", last_error());
    std::_Exit(3);
  }

  void* handle;
  decltype(&cistern_allocate) allocate = nullptr;
  decltype(&cistern_deallocate) deallocate = nullptr;
  decltype(&cistern_memory_allocated) memory_allocated = nullptr;
  decltype(&cistern_last_error) last_error = nullptr;

 private:
  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function != nullptr) return;
    std::fprintf(stderr, "%s is not exported\n", name);
    std::_Exit(3);
  }
};

// The heap is that of before, with its blocks.
int close_and_open_again(const char* path) {
  const Library first(path);
  void* kept = nullptr;
  first.check(first.allocate(1 << 20, 0, nullptr, &kept));
  first.close();
  const Library second(path);
  std::size_t bytes = 0;
  second.check(second.memory_allocated(0, &bytes));
  second.check(second.deallocate(kept));
  second.use();
  second.close();
  return bytes == 1 << 20 ? 0 : 4;
}

// Threads that used it end after it was closed: what they kept of it ends in its code.
int close_with_threads(const char* path) {
  const Library library(path);
  std::atomic<int> used{0};
  std::atomic<bool> closed{false};
  const auto body = [&] {
    library.use();
    static_cast<void>(library.allocate(1, 99, nullptr, nullptr));  // an error text of this thread's
    ++used;
    while (!closed) std::this_thread::yield();
    library.use();
  };
  std::thread one(body), two(body);
  while (used < 2) std::this_thread::yield();
  library.close();
  closed = true;
  one.join();
  two.join();
  return 0;
}

int close_with_live_memory(const char* path) {
  const Library library(path);
  void* left = nullptr;
  library.check(library.allocate(5 << 20, 0, nullptr, &left));
  library.close();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::strcmp(arguments[2], "close_and_open_again") == 0) return close_and_open_again(arguments[1]);
  if (count == 3 && std::strcmp(arguments[2], "close_with_threads") == 0) return close_with_threads(arguments[1]);
  if (count == 3 && std::strcmp(arguments[2], "close_with_live_memory") == 0)
    return close_with_live_memory(arguments[1]);
  std::fprintf(stderr, "usage: cistern_loader LIBRARY STORY\n");
  return 2;
}
