#pragma once

// Frees of the process-wide heaps that tell what is wrong with them, for doors whose frees have errors.
//
// Each throws InvalidArgument for an address that is not a live block's start, a block that was not asked for with
// `bytes`, or a stream of another driver; NotSupported in a forked child. Nothing is freed then. nullptr is nothing.
// A second free by another thread may be told on standard error instead: what goes back to the thread that
// allocates is looked at by that one.

#include <cistern/stream.h>

#include <cstddef>
#include <optional>

namespace cistern {

void deallocate_checked(void* pointer, std::optional<std::size_t> bytes = {}, const Stream* last_use = nullptr);
// The same where `stream` is the block's own, whether somebody owns it or not. Nothing is done for another stream, or
// where no live block begins there.
enum class OwnFree { freed, no_block, another_stream };
[[nodiscard]] OwnFree deallocate_on_own_stream(void* pointer, std::optional<std::size_t> bytes, const Stream& stream);
[[noreturn]] void refuse_free(void* pointer);
// Whichever of these it is.
void deallocate_used(void* pointer, std::optional<std::size_t> bytes, const Stream& last_use);
// As record_stream, and InvalidArgument for an address that is not a live block's start.
void record_stream_checked(void* pointer, const Stream& stream);

}  // namespace cistern
