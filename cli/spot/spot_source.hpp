#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/spot/spot_notice.hpp"

namespace skein::cli {

enum class Cloud { kAws, kGcp, kAzure };

std::string cloud_name(Cloud cloud);
/// "aws", "gcp", "azure"; "auto": all, of which the first that answers is meant; "none": none.
/// InvalidArgument for other words.
absl::StatusOr<std::vector<Cloud>> parse_clouds(const std::string& word);

struct MetadataRequest {
  std::string method;  // GET or PUT.
  std::string path;
  std::vector<std::pair<std::string, std::string>> headers;
};
using AskMetadata = std::function<MetadataAnswer(const MetadataRequest&)>;

/// The questions that tell whether a cloud takes this machine back. Not thread-safe.
class SpotSource {
 public:
  explicit SpotSource(Cloud cloud) : cloud_(cloud) {}

  struct Round {
    std::string trouble;  // What was not answered, or not as this cloud does; empty: nothing.
    std::optional<SpotNotice> notice;
  };
  /// Asks once, at most four requests.
  Round poll(const AskMetadata& ask, int64_t now_unix_s);

  Cloud cloud() const { return cloud_; }

 private:
  Round poll_aws(const AskMetadata& ask, int64_t now_unix_s);
  static Round poll_gcp(const AskMetadata& ask);
  Round poll_azure(const AskMetadata& ask, int64_t now_unix_s);

  Cloud cloud_;
  std::string token_;    // AWS: goes with every question.
  std::string vm_name_;  // Azure: as events name this machine.
};

}  // namespace skein::cli
