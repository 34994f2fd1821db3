#include "cli/run/exit_codes.hpp"

#include <algorithm>
#include <string>

#include "actors/printing/stderr_lines.hpp"

namespace skein::cli {

int exit_code(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kDataLoss:
      return kExitBadData;
    case absl::StatusCode::kCancelled:
      return kExitKilled;
    default:
      return kExitFault;
  }
}

int report_error(const absl::Status& status) { return report_error(status, exit_code(status)); }

int report_error(const absl::Status& status, int code) {
  std::string message(status.message());
  // It may quote a file, or a peer: nobody else moves the cursor of this terminal.
  const auto is_control = [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7f; };
  std::replace_if(message.begin(), message.end(), is_control, '?');
  actors::print_error_line("skein: " + message);
  actors::finish_error_lines(actors::LinePrinter::kAtEnd);
  return code;
}

}  // namespace skein::cli
