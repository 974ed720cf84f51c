#include "runtime/simulated/inside_operation.h"

#include <utility>

namespace cistern::simulated {
namespace {

// Initial-exec, as all that each call asks: else that is a call of the loader's.
[[gnu::tls_model("initial-exec")]] constinit thread_local const void* running_driver = nullptr;

}  // namespace

InsideOperation::InsideOperation(const void* driver) noexcept : outer_(std::exchange(running_driver, driver)) {}
InsideOperation::~InsideOperation() { running_driver = outer_; }

bool is_inside_operation(const void* driver) noexcept { return running_driver == driver; }

}  // namespace cistern::simulated
