// A manifest of token files: whatever it says, it is refused, or names files beside it, each once.
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "gpu/data/token_manifest.hpp"
#include "tests/fuzz/target.hpp"

namespace skein::fuzz {

void run_one(const uint8_t* data, size_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  const auto manifest = gpu::parse_manifest(json, "fuzzed");
  if (!manifest.ok()) return;
  if (manifest->vocab_size < 1 || manifest->vocab_size > INT32_MAX) __builtin_trap();
  std::set<std::string> names;
  for (const auto* part : {&manifest->training, &manifest->validation}) {
    for (const auto& shard : *part) {
      // As a system call sees it.
      const std::string name = std::filesystem::path(shard.file.c_str()).lexically_normal();
      const bool is_beside = name == shard.file && !name.empty() && name != "." && name != ".." &&
                             name.find('/') == std::string::npos;
      if (!is_beside || !names.insert(name).second) __builtin_trap();
    }
  }
}

size_t short_run() { return 100'000; }

std::vector<std::vector<uint8_t>> seeds() {
  std::vector<std::vector<uint8_t>> all;
  for (const std::string text :
       {R"({"format":"skein-tokens","version":1,"vocab_size":9,"token_bytes":2,)"
        R"("train":[{"file":"a.b","tokens":2},{"file":"ab","tokens":1}],"validation":[]})",
        R"({"format":"skein-tokens","version":1,"vocab_size":2147483647,"token_bytes":4,)"
        R"("tokenizer":{"sha256":"0123456789abcdef0123456789abcdef)"
        R"(0123456789abcdef0123456789abcdef"},)"
        R"("train":[{"file":"a","tokens":2},{"file":"b","tokens":1}],)"
        R"("validation":[{"file":"..c","tokens":0},{"file":"\u0061d","tokens":3}]})"}) {
    all.emplace_back(text.begin(), text.end());
  }
  return all;
}

}  // namespace skein::fuzz
