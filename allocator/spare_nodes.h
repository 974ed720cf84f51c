#pragma once

// SpareNodes: memory for the nodes of trees that must not fail to take one: given back nodes are kept, and more can
// be brought before they are needed.
//
// Complexity: O(1), but for memory of the host's once in 256 nodes. Not thread-safe: the owner's lock is held.

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <vector>

namespace cistern {

class SpareNodes final : public std::pmr::memory_resource {
 public:
  SpareNodes() = default;
  SpareNodes(const SpareNodes&) = delete;
  SpareNodes& operator=(const SpareNodes&) = delete;

  // So many that are taken at a time need no memory of the host's. Throws std::bad_alloc, unchanged in what shows.
  void provide_in_all(std::size_t nodes);

 private:
  void add_chunk();

  static constexpr std::size_t kNodeBytes = 64;
  static constexpr std::size_t kNodesPerChunk = 256;
  union alignas(kNodeBytes) Node {
    Node* next;
    std::byte bytes[kNodeBytes];
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* place, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::vector<std::unique_ptr<Node[]>> chunks_;
  Node* first_ = nullptr;
  std::size_t spare_ = 0;
};

}  // namespace cistern
