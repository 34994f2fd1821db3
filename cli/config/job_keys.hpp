#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plans/base/nearest_name.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::cli {

/// One key of the job file. Parsing, `config show`, `config keys`, overrides and the resolved file
/// are all made from the table of these.
struct JobKey {
  std::string section;  // "training"
  std::string name;     // "seq_len"
  /// "integer", "number", "boolean", "string", "list of integers", "list of numbers" or "list of
  /// strings".
  std::string type;
  std::string help;  // One line: unit, range, meaning of 0.
  /// The value as TOML.
  std::function<std::string(const plans::JobSpec&)> get;
  /// Sets the value from text: TOML, or the bare form of a command line. InvalidArgument says what
  /// was expected.
  std::function<absl::Status(plans::JobSpec&, const std::string&)> set;

  std::string full_name() const { return section + "." + name; }
};

/// All keys, section by section.
const std::vector<JobKey>& job_keys();

/// The key called `full_name`, with `-` and `_` the same; null if there is none. A key that has
/// been renamed is found by its old name as well, with a line on stderr the first time.
const JobKey* find_key(const std::string& full_name);

using plans::suggestion;

}  // namespace skein::cli
