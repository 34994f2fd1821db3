// Stands in for a profiler: NVTX loads it where NVTX_INJECTION64_PATH names it. Exports
// `const char* recorded_ranges()`: "[name" for each range that begins and "]" for each that ends.

#include <cstdint>
#include <mutex>
#include <string>

#include <nvtx3/nvToolsExt.h>

namespace {

std::mutex mutex;
std::string ranges;

int push(const char* name) {
  std::lock_guard lock(mutex);
  ranges += std::string("[") + name;
  return 0;
}

int pop() {
  std::lock_guard lock(mutex);
  ranges += "]";
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* recorded_ranges() {
  static std::string copy;
  std::lock_guard lock(mutex);
  copy = ranges;
  return copy.c_str();
}

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned count = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &count) == 0 ||
      count <= NVTX_CBID_CORE_RangePop) {
    return 0;
  }
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
