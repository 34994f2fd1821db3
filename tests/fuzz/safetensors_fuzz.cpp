// A safetensors file: whatever its header says, tensors that are accepted lie inside the file.
#include <span>
#include <string>

#include "gpu/checkpoint/safetensors.hpp"
#include "tests/fuzz/target.hpp"

namespace skein::fuzz {

void run_one(const uint8_t* data, size_t bytes) {
  const auto header = gpu::parse_safetensors(std::as_bytes(std::span(data, bytes)), bytes);
  if (!header.ok()) return;
  for (const auto& [name, entry] : header->tensors) {
    if (entry.begin > entry.end || header->data_offset + entry.end > bytes) __builtin_trap();
  }
}

size_t short_run() { return 100'000; }

std::vector<std::vector<uint8_t>> seeds() {
  std::vector<std::vector<uint8_t>> all;
  for (
      const std::string json :
      {R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},)"
       R"("b":{"dtype":"I64","shape":[],"data_offsets":[6,14]}})"}) {
    std::vector<uint8_t> bytes = {static_cast<uint8_t>(json.size()), 0, 0, 0, 0, 0, 0, 0};
    bytes.insert(bytes.end(), json.begin(), json.end());
    bytes.resize(bytes.size() + (all.empty() ? 8 : 14));
    all.push_back(std::move(bytes));
  }
  return all;
}

}  // namespace skein::fuzz
