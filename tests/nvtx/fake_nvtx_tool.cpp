// A tool as NVTX loads one by NVTX_INJECTION64_PATH: it writes down each call.
//
// CISTERN_FAKE_NVTX_MEMORY   set: it follows the extension for memory, too

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#include <nvtx3/nvToolsExtMem.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::string& calls() {
  static std::string calls;
  return calls;
}
void note(const std::string& call) {
  const std::lock_guard lock(mutex);
  calls() += call + "\n";
}

std::string text(const void* pointer) { return std::to_string(reinterpret_cast<std::uintptr_t>(pointer)); }

// Domains are their names.
nvtxDomainHandle_t create_domain(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}
std::string name_of(nvtxDomainHandle_t domain) { return *reinterpret_cast<const std::string*>(domain); }

void mark(const char* message) { note("mark " + std::string(message)); }
int push(const char* message) {
  note("push " + std::string(message));
  return 0;
}
int pop() {
  note("pop");
  return 0;
}
void name_stream(CUstream stream, const char* name) { note("stream " + text(stream) + " " + name); }
void domain_mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  note(name_of(domain) + ": mark " + event->message.ascii);
}
int domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  note(name_of(domain) + ": push " + event->message.ascii);
  return 0;
}
int domain_pop(nvtxDomainHandle_t domain) {
  note(name_of(domain) + ": pop");
  return 0;
}
void destroy_domain(nvtxDomainHandle_t domain) {
  note(name_of(domain) + ": destroyed");
  delete reinterpret_cast<const std::string*>(domain);
}

nvtxMemHeapHandle_t register_heap(nvtxDomainHandle_t domain, const nvtxMemHeapDesc_t* heap) {
  const auto* range = static_cast<const nvtxMemVirtualRangeDesc_t*>(heap->typeSpecificDesc);
  note(name_of(domain) + ": heap " + text(range->ptr) + " " + std::to_string(range->size));
  return reinterpret_cast<nvtxMemHeapHandle_t>(const_cast<void*>(range->ptr));
}
void unregister_heap(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap) {
  note(name_of(domain) + ": no heap " + text(heap));
}
void register_regions(nvtxDomainHandle_t domain, const nvtxMemRegionsRegisterBatch_t* batch) {
  const auto* range = static_cast<const nvtxMemVirtualRangeDesc_t*>(batch->regionDescElements);
  note(name_of(domain) + ": region " + text(range->ptr) + " " + std::to_string(range->size) + " in " +
       text(batch->heap));
}
void unregister_regions(nvtxDomainHandle_t domain, const nvtxMemRegionsUnregisterBatch_t* batch) {
  if (batch->refCount == 0) return;
  note(name_of(domain) + ": no region " + text(batch->refElements->pointer));
}

template <class Function>
void set(NvtxFunctionTable table, int callback, Function function) {
  *table[callback] = reinterpret_cast<NvtxFunctionPointer>(function);
}

template <class Function>
void set_slot(std::intptr_t* slots, int callback, Function function) {
  slots[callback] = reinterpret_cast<std::intptr_t>(function);
}

}  // namespace

extern "C" {

#define CISTERN_TOOL_EXPORT __attribute__((visibility("default")))

CISTERN_TOOL_EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  set(table, NVTX_CBID_CORE_MarkA, mark);
  set(table, NVTX_CBID_CORE_RangePushA, push);
  set(table, NVTX_CBID_CORE_RangePop, pop);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CUDA, &table, &size) == 0) return 0;
  set(table, NVTX_CBID_CUDA_NameCuStreamA, name_stream);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  set(table, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  set(table, NVTX_CBID_CORE2_DomainDestroy, destroy_domain);
  set(table, NVTX_CBID_CORE2_DomainMarkEx, domain_mark);
  set(table, NVTX_CBID_CORE2_DomainRangePushEx, domain_push);
  set(table, NVTX_CBID_CORE2_DomainRangePop, domain_pop);
  return 1;
}

CISTERN_TOOL_EXPORT int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_MODULEID_MEM || std::getenv("CISTERN_FAKE_NVTX_MEMORY") == nullptr) return 0;
  std::intptr_t* slots = module->segments[0].functionSlots;
  set_slot(slots, NVTX3EXT_CBID_nvtxMemHeapRegister, register_heap);
  set_slot(slots, NVTX3EXT_CBID_nvtxMemHeapUnregister, unregister_heap);
  set_slot(slots, NVTX3EXT_CBID_nvtxMemRegionsRegister, register_regions);
  set_slot(slots, NVTX3EXT_CBID_nvtxMemRegionsUnregister, unregister_regions);
  return 1;
}

// What was called since the last question: a line each.
CISTERN_TOOL_EXPORT const char* cistern_fake_nvtx_calls() {
  static std::string said;
  const std::lock_guard lock(mutex);
  said.swap(calls());
  calls().clear();
  return said.c_str();
}

}  // extern "C"
