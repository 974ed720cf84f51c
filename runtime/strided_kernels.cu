// The kernels of strided work, for devices of every generation: scripts/kernels.sh makes PTX of this,
// strided_kernels.inc, which the driver compiles for its device.

#include "runtime/strided_work.h"

namespace {

template <class Value, class Combine>
__attribute__((device)) void run(const cistern::StridedWork& work, Combine combine) {
  const auto blocks = static_cast<std::uint64_t>(__nvvm_read_ptx_sreg_nctaid_x());
  const auto threads = static_cast<std::uint64_t>(__nvvm_read_ptx_sreg_ntid_x());
  auto* const destination = reinterpret_cast<Value*>(work.destination);
  const auto* const source = reinterpret_cast<const Value*>(work.source);
  for (std::uint64_t i = __nvvm_read_ptx_sreg_ctaid_x() * threads + __nvvm_read_ptx_sreg_tid_x(); i < work.count;
       i += blocks * threads) {
    const cistern::StridedOffsets at = cistern::offsets_at(work, i);
    destination[at.destination] = combine(destination[at.destination], source[at.source]);
  }
}

}  // namespace

#define CISTERN_KERNEL(name, Value, Combine)                                                \
  extern "C" __attribute__((global)) void cistern_##name(const cistern::StridedWork work) { \
    run<Value>(work, Combine());                                                            \
  }

CISTERN_KERNEL(copy_u8, std::uint8_t, cistern::TheSecond)
CISTERN_KERNEL(copy_u16, std::uint16_t, cistern::TheSecond)
CISTERN_KERNEL(copy_u32, std::uint32_t, cistern::TheSecond)
CISTERN_KERNEL(copy_u64, std::uint64_t, cistern::TheSecond)
CISTERN_KERNEL(add_u8, std::uint8_t, cistern::PlainSum)
CISTERN_KERNEL(add_u16, std::uint16_t, cistern::PlainSum)
CISTERN_KERNEL(add_u32, std::uint32_t, cistern::PlainSum)
CISTERN_KERNEL(add_u64, std::uint64_t, cistern::PlainSum)
CISTERN_KERNEL(add_f16, std::uint16_t, cistern::HalfSum)
CISTERN_KERNEL(add_bf16, std::uint16_t, cistern::BfloatSum)
CISTERN_KERNEL(add_f32, float, cistern::PlainSum)
CISTERN_KERNEL(add_f64, double, cistern::PlainSum)
CISTERN_KERNEL(add_boolean, std::uint8_t, cistern::AnyOf)
