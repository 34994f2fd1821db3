#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace skein::net {

/// The peers to which connections are refused on purpose, and until when. Time is an argument.
/// Not thread-safe.
class CutLinks {
 public:
  /// Refuses `address` for `seconds` from `now_us` on; 0: for ever. The latest word counts.
  void cut(const std::string& address, double seconds, uint64_t now_us);
  bool is_cut(const std::string& address, uint64_t now_us) const;

 private:
  std::map<std::string, std::optional<uint64_t>> until_us_;  // By address; none: for ever.
};

}  // namespace skein::net
