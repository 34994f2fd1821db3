#include "cli/run/exit_codes.hpp"

#include <cstdio>
#include <string>

namespace skein::cli {

int exit_code(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      return kExitBadData;
    default:
      return kExitFault;
  }
}

int report_error(const absl::Status& status) { return report_error(status, exit_code(status)); }

int report_error(const absl::Status& status, int code) {
  const std::string message(status.message());
  std::fprintf(stderr, "skein: %s\n", message.c_str());
  return code;
}

}  // namespace skein::cli
