#pragma once

// Arrays that grow where they are: a mapping of its own each, in which room is address space alone until it is used.
//
// To make one longer copies nothing, for the kernel moves pages by its tables alone (mremap, Linux). So who will need
// much in the end can have room for all of it from the start, and asks for no host memory from there on. Pages come
// where `provide` says that they are needed, some ahead, so that most operations wait for none.
// GrowingTable has room for elements, GrowingList is a vector in one.
// Complexity: O(1) for each operation, but `provide`: O(pages), and where a table moves O(pages in use). Not
// thread-safe.

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

namespace cistern {

// Room for so many bytes, all of which are 0. Throws std::bad_alloc. Thread-safe.
[[nodiscard]] void* obtain_table(std::size_t bytes);
// The same with what is in it, there or elsewhere; what is new is 0. Requires: `table` was obtained, with `bytes`.
// Throws std::bad_alloc, unchanged.
[[nodiscard]] void* enlarge_table(void* table, std::size_t bytes, std::size_t larger);
// Requires: obtained, with as many bytes.
void release_table(void* table, std::size_t bytes) noexcept;
// Has the kernel bring the pages of these bytes, if it can (Linux 5.14): else they come when they are used.
void bring_pages(void* begin, std::size_t bytes) noexcept;

template <class T>
class GrowingTable {
 public:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  GrowingTable() = default;
  // With room for so many elements, all of whose bytes are 0, without pages. Throws std::bad_alloc.
  explicit GrowingTable(std::size_t elements) { expect(elements); }
  GrowingTable(GrowingTable&& other) noexcept
      : elements_(std::exchange(other.elements_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        brought_(std::exchange(other.brought_, 0)) {}
  // The other one has what this one had.
  GrowingTable& operator=(GrowingTable&& other) noexcept {
    std::swap(elements_, other.elements_);
    std::swap(size_, other.size_);
    std::swap(brought_, other.brought_);
    return *this;
  }
  ~GrowingTable() {
    if (size_ != 0) release_table(elements_, size_ * sizeof(T));
  }

  // Room for so many elements, or twice as many as there was room for, and their pages. New ones are not initialised.
  // Throws std::bad_alloc, unchanged; never where there is room.
  void provide(std::size_t elements) {
    if (elements > brought_) bring(elements);
  }
  // Room for so many, without pages; all bytes of new ones are 0. Throws std::bad_alloc, unchanged.
  void expect(std::size_t elements) {
    if (elements > size_) grow(std::max({elements, size_ + size_ / 8, kFewest}));
  }
  // Elements that there is room for.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T& operator[](std::size_t at) noexcept { return elements_[at]; }
  [[nodiscard]] const T& operator[](std::size_t at) const noexcept { return elements_[at]; }
  // Null where there is no room yet.
  [[nodiscard]] T* data() noexcept { return elements_; }
  [[nodiscard]] const T* data() const noexcept { return elements_; }

 private:
  static constexpr std::size_t kFewest = std::max<std::size_t>(1, (std::size_t{16} << 10) / sizeof(T));
  static constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 2 / sizeof(T);

  // Those of an eighth more, too, as far as there is room.
  [[gnu::noinline]] void bring(std::size_t elements) {
    if (elements > size_) grow(std::max({elements, 2 * size_, kFewest}));
    const std::size_t most = std::min(elements + std::max(elements / 8, kFewest), size_);
    bring_pages(elements_ + brought_, (most - brought_) * sizeof(T));
    brought_ = most;
  }
  void grow(std::size_t elements) {
    if (elements > kMost) throw std::bad_array_new_length();
    void* const room = size_ == 0 ? obtain_table(elements * sizeof(T))
                                  : enlarge_table(elements_, size_ * sizeof(T), elements * sizeof(T));
    elements_ = static_cast<T*>(room);
    size_ = elements;
  }

  T* elements_ = nullptr;
  std::size_t size_ = 0;
  std::size_t brought_ = 0;  // elements whose pages are there
};

template <class T>
class GrowingList {
 public:
  GrowingList() = default;
  GrowingList(GrowingList&& other) noexcept
      : elements_(std::move(other.elements_)), size_(std::exchange(other.size_, 0)) {}
  GrowingList& operator=(GrowingList&& other) noexcept {
    elements_ = std::move(other.elements_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~GrowingList() = default;

  // So many can be in it. Throws std::bad_alloc, unchanged.
  void provide(std::size_t elements) { elements_.provide(elements); }
  void expect(std::size_t elements) { elements_.expect(elements); }
  [[nodiscard]] std::size_t room() const noexcept { return elements_.size(); }

  // Requires: there is room.
  void push_back(const T& element) noexcept {
    assert(size_ < room());
    elements_[size_++] = element;
  }
  // New ones are not initialised. Requires: there is room.
  void resize(std::size_t elements) noexcept {
    assert(elements <= room());
    size_ = elements;
  }
  void pop_back() noexcept { --size_; }
  void clear() noexcept { size_ = 0; }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] T& operator[](std::size_t at) noexcept { return elements_[at]; }
  [[nodiscard]] const T& operator[](std::size_t at) const noexcept { return elements_[at]; }
  [[nodiscard]] T& back() noexcept { return elements_[size_ - 1]; }
  [[nodiscard]] const T& back() const noexcept { return elements_[size_ - 1]; }
  [[nodiscard]] T* begin() noexcept { return elements_.data(); }
  [[nodiscard]] T* end() noexcept { return elements_.data() + size_; }
  [[nodiscard]] const T* begin() const noexcept { return elements_.data(); }
  [[nodiscard]] const T* end() const noexcept { return elements_.data() + size_; }

 private:
  GrowingTable<T> elements_;
  std::size_t size_ = 0;
};

}  // namespace cistern
