#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/spot/spot_source.hpp"

namespace skein::cli {

/// All three clouds answer here. A number, because asking for a name may take longer than we wait.
inline constexpr const char* kMetadataUrl = "http://169.254.169.254";

/// Asks a metadata service by HTTP, each time on a connection of its own, with short time-outs and
/// past any proxy. Thread-safe, but one question at a time.
class MetadataClient {
 public:
  /// `base_url`: "http://ADDRESS" or "http://ADDRESS:PORT", where the address is a number (IPv6 in
  /// brackets) or localhost.
  /// InvalidArgument   if it is anything else.
  static absl::StatusOr<std::unique_ptr<MetadataClient>> make(const std::string& base_url);
  virtual ~MetadataClient() = default;

  /// Status 0 if no answer comes, or one of more than 64 KiB.
  virtual MetadataAnswer ask(const MetadataRequest& request) = 0;
  /// Ends the question under way, and answers all later ones with status 0 at once. Takes at most
  /// the time in which a connection must be made (0.5 s).
  virtual void stop() = 0;
};

}  // namespace skein::cli
