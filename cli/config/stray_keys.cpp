#include "cli/config/stray_keys.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::cli {
namespace {

/// "--speed" of device.speed and "--device" of device.type; empty if the command has neither.
std::string own_option(const std::string& key, const std::vector<std::string>& options) {
  const size_t dot = key.find('.');
  const std::string name = key.substr(dot + 1);
  const std::string option = absl::StrCat("--", name == "type" ? key.substr(0, dot) : name);
  return std::find(options.begin(), options.end(), option) == options.end() ? "" : option;
}

}  // namespace

absl::Status refuse_job_keys(const std::string& command, const std::string& why,
                             const std::vector<std::string>& options, const Overrides& given) {
  if (given.empty()) return absl::OkStatus();
  std::vector<std::string> keys;
  std::vector<std::string> meant;
  for (const auto& [key, value] : given) {
    keys.push_back("--" + key);
    const std::string option = own_option(key, options);
    if (!option.empty()) meant.push_back(absl::StrCat(option, " ", value));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(command, " takes no keys of a job", why.empty() ? "" : ", as ", why, ": ",
                   absl::StrJoin(keys, ", "), meant.empty() ? "" : "; did you mean ",
                   absl::StrJoin(meant, " "), meant.empty() ? "" : "?"));
}

}  // namespace skein::cli
