#include "cli/compare/experiment.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/config/job_keys.hpp"
#include "cli/config/text_file.hpp"
#include "cli/config/toml_parser.hpp"
#include "cli/config/toml_text.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/simulator/job_scenario.hpp"

namespace skein::cli {
namespace {

constexpr size_t kNameCharsMax = 40;  // The longest name of a variant, also in a folder's name.

const std::vector<std::string>& compare_keys() {
  static const std::vector<std::string> keys = {"name",   "base",  "folder",   "workers",
                                                "target", "seeds", "scenarios"};
  return keys;
}

absl::Status at(const std::string& place, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", what));
}

std::string text_of(const toml::node& node) {
  if (node.is_string()) return toml_string(node.as_string()->get());
  std::ostringstream out;
  out << toml::node_view<const toml::node>(node);
  return out.str();
}

/// Plain text that may be a folder's name as it is.
bool is_plain_name(const std::string& name) {
  const auto is_plain = [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= kNameCharsMax &&
         std::all_of(name.begin(), name.end(), is_plain);
}

/// Refuses keys by which runs would not be what the comparison takes them for.
absl::Status check_is_free(const std::string& key) {
  static const std::set<std::string> ours = {"job.name", "job.dump_folder", "debug.seed",
                                             "device.scenario"};
  if (!ours.contains(key)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key,
                   " is set by the comparison: see compare.folder, compare.seeds and "
                   "compare.scenarios"));
}

/// Reads one file. Used once.
class ExperimentReader {
 public:
  explicit ExperimentReader(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<Experiment> read(const toml::table& table) {
    for (const auto& [key, node] : table) {
      const std::string section(key.str());
      if (section != "compare" && section != "job" && section != "variants") {
        return at(line(node), absl::StrCat("unknown section [", section, "]",
                                           suggestion(section, {"compare", "job", "variants"})));
      }
      if (!node.is_table()) return at(line(node), section + " must be a section");
    }
    if (table["compare"].is_table()) {
      SKEIN_RETURN_IF_ERROR(read_compare(*table["compare"].as_table()));
    }
    if (table["job"].is_table()) {
      SKEIN_RETURN_IF_ERROR(read_keys(*table["job"].as_table(), "", result_.job));
    }
    if (table["variants"].is_table()) {
      SKEIN_RETURN_IF_ERROR(read_variants(*table["variants"].as_table()));
    }
    SKEIN_RETURN_IF_ERROR(finish());
    return std::move(result_);
  }

 private:
  std::string line(const toml::node& node) const {
    return absl::StrCat(path_, ":", node.source().begin.line);
  }
  absl::Status expected(const toml::node& node, const std::string& key, const char* what) const {
    return at(line(node),
              absl::StrCat("compare.", key, ": expected ", what, ", got ", text_of(node)));
  }

  absl::Status read_compare(const toml::table& table) {
    for (const auto& [key_node, node] : table) {
      const std::string key(key_node.str());
      const auto& known = compare_keys();
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        return at(line(node), absl::StrCat("unknown key compare.", key, suggestion(key, known)));
      }
      SKEIN_RETURN_IF_ERROR(read_compare_key(key, node));
    }
    return absl::OkStatus();
  }

  absl::Status read_compare_key(const std::string& key, const toml::node& node) {
    if (key == "target") {
      if (!node.is_number()) return expected(node, key, "a validation loss such as 2.5");
      result_.target = *node.value<double>();
      has_target_ = true;
      return absl::OkStatus();
    }
    if (key == "workers") {
      if (!node.is_integer()) return expected(node, key, "a number of workers");
      result_.workers = *node.value<int64_t>();
      return absl::OkStatus();
    }
    if (key == "seeds") return read_seeds(node);
    if (key == "scenarios") return read_scenarios(node);
    if (!node.is_string()) return expected(node, key, "a string");
    std::string& text = key == "name"   ? result_.name
                        : key == "base" ? result_.base
                                        : result_.folder;
    text = node.as_string()->get();
    return absl::OkStatus();
  }

  absl::Status read_seeds(const toml::node& node) {
    const char* what = "a list of integers such as [1, 2, 3, 4, 5]";
    if (!node.is_array()) return expected(node, "seeds", what);
    for (const toml::node& item : *node.as_array()) {
      if (!item.is_integer() || *item.value<int64_t>() < 0) return expected(node, "seeds", what);
      result_.seeds.push_back(*item.value<int64_t>());
    }
    return absl::OkStatus();
  }

  absl::Status read_scenarios(const toml::node& node) {
    const char* what = "a list of strings such as [\"H0\", \"H2\"]";
    if (!node.is_array()) return expected(node, "scenarios", what);
    for (const toml::node& item : *node.as_array()) {
      if (!item.is_string()) return expected(node, "scenarios", what);
      result_.scenarios.push_back(item.as_string()->get());
    }
    return absl::OkStatus();
  }

  /// Keys as "sync.policy" = ... or, without the quotes, as tables in tables.
  absl::Status read_keys(const toml::table& table, const std::string& prefix, Overrides& keys) {
    for (const auto& [key_node, node] : table) {
      const std::string name = prefix + std::string(key_node.str());
      const JobKey* key = find_key(name);
      if (key == nullptr && node.is_table() && prefix.empty()) {
        SKEIN_RETURN_IF_ERROR(read_keys(*node.as_table(), name + ".", keys));
        continue;
      }
      if (key == nullptr) {
        std::vector<std::string> names;
        for (const JobKey& each : job_keys()) names.push_back(each.full_name());
        return at(line(node), absl::StrCat("unknown key ", name, suggestion(name, names)));
      }
      if (const absl::Status status = check_is_free(key->full_name()); !status.ok()) {
        return at(line(node), std::string(status.message()));
      }
      keys.push_back({key->full_name(), text_of(node)});
    }
    return absl::OkStatus();
  }

  absl::Status read_variants(const toml::table& table) {
    std::vector<std::pair<uint32_t, Variant>> found;  // By line: toml++ sorts by name.
    for (const auto& [key, node] : table) {
      Variant variant;
      variant.name = std::string(key.str());
      if (!is_plain_name(variant.name)) {
        return at(line(node), absl::StrCat("variant \"", variant.name, "\": write at most ",
                                           kNameCharsMax, " letters, digits, - and _"));
      }
      if (!node.is_table()) {
        return at(line(node), absl::StrCat("write [variants.", variant.name, "]"));
      }
      SKEIN_RETURN_IF_ERROR(read_keys(*node.as_table(), "", variant.keys));
      found.push_back({node.source().begin.line, std::move(variant)});
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [at_line, variant] : found) result_.variants.push_back(std::move(variant));
    return absl::OkStatus();
  }

  absl::Status finish() {
    const auto lacks = [&](const char* what) { return at(path_, what); };
    if (result_.base.empty()) return lacks("lacks compare.base, the job file that all runs share");
    if (!has_target_) {
      return lacks(
          "lacks compare.target: the validation loss whose time is measured, fixed before any run");
    }
    if (!(std::isfinite(result_.target) && result_.target > 0)) {
      return lacks("compare.target must be a validation loss above 0");
    }
    if (result_.seeds.empty()) {
      return lacks("lacks compare.seeds: list some, as seeds = [1, 2, 3, 4, 5]");
    }
    if (std::set<int64_t>(result_.seeds.begin(), result_.seeds.end()).size() !=
        result_.seeds.size()) {
      return lacks("compare.seeds: one appears twice, which would count one run twice");
    }
    if (result_.variants.empty()) {
      return lacks("has no variant: write [variants.NAME] with job keys, the baseline first");
    }
    if (result_.workers < 1) return lacks("compare.workers must be at least 1");
    if (result_.scenarios.empty()) result_.scenarios = {"H0"};
    if (std::set<std::string>(result_.scenarios.begin(), result_.scenarios.end()).size() !=
        result_.scenarios.size()) {
      return lacks("compare.scenarios: one appears twice");
    }
    if (result_.run_count() > kRunsMax) {
      return lacks("has more than 10,000 runs: use fewer seeds, scenarios or variants");
    }
    const std::filesystem::path path(path_);
    if (result_.name.empty()) result_.name = path.stem().string();
    if (result_.folder.empty()) result_.folder = "outputs/compare-" + result_.name;
    result_.base = (path.parent_path() / result_.base).lexically_normal().string();
    return absl::OkStatus();
  }

  const std::string path_;
  Experiment result_;
  bool has_target_ = false;
};

/// Letters and digits of a scenario's text with dashes between them.
std::string folder_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (absl::ascii_isalnum(c)) {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  return name.substr(0, kNameCharsMax);
}

}  // namespace

absl::StatusOr<Experiment> parse_experiment(const std::string& text, const std::string& path) {
  toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    return at(absl::StrCat(path, ":", parsed.error().source().begin.line),
              std::string(parsed.error().description()));
  }
  SKEIN_ASSIGN_OR_RETURN(Experiment experiment, ExperimentReader(path).read(parsed.table()));
  experiment.text = text;
  return experiment;
}

absl::StatusOr<Experiment> load_experiment(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "experiment file"));
  return parse_experiment(text, path);
}

absl::Status add_keys(Experiment& experiment, const Overrides& keys) {
  for (const auto& [key, value] : keys) {
    SKEIN_RETURN_IF_ERROR(check_is_free(key));
    experiment.job.push_back({key, value});
  }
  return absl::OkStatus();
}

std::vector<ExperimentRun> runs_of(const Experiment& experiment) {
  std::vector<ExperimentRun> runs;
  for (size_t seed = 0; seed < experiment.seeds.size(); ++seed) {
    for (size_t scenario = 0; scenario < experiment.scenarios.size(); ++scenario) {
      for (size_t variant = 0; variant < experiment.variants.size(); ++variant) {
        runs.push_back({seed, scenario, variant});
      }
    }
  }
  return runs;
}

std::string folder_of(const Experiment& experiment, const ExperimentRun& run) {
  return absl::StrCat("runs/seed-", experiment.seeds[run.seed], "/", run.scenario + 1, "-",
                      folder_name(experiment.scenarios[run.scenario]), "/",
                      experiment.variants[run.variant].name);
}

Overrides keys_of(const Experiment& experiment, const ExperimentRun& run) {
  // Checkpoints take time that has nothing to do with what is compared; [job] may want them.
  Overrides keys = {{"checkpoint.enable", "false"}};
  keys.insert(keys.end(), experiment.job.begin(), experiment.job.end());
  const Overrides& own = experiment.variants[run.variant].keys;
  keys.insert(keys.end(), own.begin(), own.end());
  keys.push_back({"debug.seed", absl::StrCat(experiment.seeds[run.seed])});
  keys.push_back({"device.scenario", toml_string(experiment.scenarios[run.scenario])});
  return keys;
}

absl::Status check_jobs(const Experiment& experiment, const SayLine& say) {
  const std::vector<ExperimentRun> runs = runs_of(experiment);
  for (const ExperimentRun& run : runs) {
    const std::string& variant = experiment.variants[run.variant].name;
    const auto job = load_job(experiment.base, keys_of(experiment, run));
    if (!job.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("variant ", variant, ": ", std::string(job.status().message())));
    }
    if (run == runs.front()) tell_ignored(*job, say);  // Runs and variants add nothing to it.
    if (job->spec.validation.batches == 0 || job->spec.validation.interval == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("variant ", variant,
                       ": the target is a validation loss, and there is no validation: set "
                       "validation.interval and validation.batches in [job]"));
    }
    if (job->spec.device.scenario_trace.empty()) {
      const auto scenario =
          plans::job_scenario(job->spec, static_cast<int32_t>(experiment.workers));
      if (!scenario.ok()) return scenario.status();
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::cli
