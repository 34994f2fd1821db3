#include "cli/config/job_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "actors/printing/stderr_lines.hpp"
#include "cli/config/job_keys.hpp"
#include "cli/config/model_claims.hpp"
#include "cli/config/text_file.hpp"
#include "cli/config/toml_parser.hpp"
#include "cli/config/toml_text.hpp"
#include "gpu/checkpoint/model_config.hpp"
#include "gpu/checkpoint/newest_checkpoint.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/spelled_out.hpp"

namespace skein::cli {
namespace {

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const JobKey& key : job_keys()) names.push_back(key.full_name());
  return names;
}

std::vector<std::string> all_sections() {
  std::vector<std::string> sections;
  for (const JobKey& key : job_keys()) {
    if (sections.empty() || sections.back() != key.section) sections.push_back(key.section);
  }
  return sections;
}

absl::Status at(const std::string& place, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", what));
}

/// Whether a TOML value has the type that the table says, before its text is read.
bool has_type(const toml::node& node, const std::string& type) {
  if (type == "integer") return node.is_integer();
  if (type == "number") return node.is_number();
  if (type == "boolean") return node.is_boolean();
  if (type == "string") return node.is_string();
  if (type == "integer or \"auto\"") return node.is_integer() || node.is_string();
  return node.is_array();
}

constexpr const char* kEnvironmentPrefix = "SKEIN_";
/// Variables that are no keys: of tests, of plugins, and of docker/compose.yaml.
constexpr const char* kOtherVariables[] = {"SKEIN_FAIL_POINT",    "SKEIN_CUDA_PLUGIN",
                                           "SKEIN_NCCL_LIBRARY",  "SKEIN_UPDATE_GOLDEN",
                                           "SKEIN_TEST_SLOWNESS", "SKEIN_TEST_CUDA_PLUGIN",
                                           "SKEIN_JOB",           "SKEIN_WORKERS",
                                           "SKEIN_KEYS",          "SKEIN_IMAGE"};

/// What jobs, environments and the configurations of older runs may still have, and what is ignored
/// in them. All were booleans.
constexpr const char* kKeysNoLongerUsed[] = {"debug.deterministic"};

bool is_no_longer_used(const std::string& name) {
  return std::find(std::begin(kKeysNoLongerUsed), std::end(kKeysNoLongerUsed), name) !=
         std::end(kKeysNoLongerUsed);
}

std::string ignored_line(const std::string& origin, const std::string& name) {
  const std::string where = origin == name ? "" : absl::StrCat(origin, ": ");
  return absl::StrCat(where, name, " is no longer used, and is ignored; leave it out");
}

struct Assignment {
  const JobKey* key = nullptr;
  std::string text;
  std::string origin;
};

absl::StatusOr<std::vector<Assignment>> read_table(const toml::table& table,
                                                   const std::string& file,
                                                   std::vector<std::string>& ignored) {
  std::vector<Assignment> assignments;
  for (const auto& [section_key, section_node] : table) {
    const std::string section(section_key.str());
    const std::string place = absl::StrCat(file, ":", section_node.source().begin.line);
    const auto sections = all_sections();
    if (section == "compare") {
      return at(place,
                "[compare] makes this a file for `skein compare`; a job has no such section");
    }
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) {
      return at(place,
                absl::StrCat("unknown section [", section, "]", suggestion(section, sections)));
    }
    if (!section_node.is_table()) {
      return at(place, absl::StrCat(section, " must be a section: write [", section, "]"));
    }
    for (const auto& [key, node] : *section_node.as_table()) {
      const std::string name = absl::StrCat(section, ".", std::string(key.str()));
      const std::string line = absl::StrCat(file, ":", node.source().begin.line);
      if (is_no_longer_used(name)) {
        ignored.push_back(ignored_line(line, name));
        continue;
      }
      const JobKey* found = find_key(name);
      if (found == nullptr) {
        return at(line, absl::StrCat("unknown key ", name, suggestion(name, all_names())));
      }
      if (!has_type(node, found->type)) {
        return at(line, absl::StrCat(name, ": expected ", found->type, ", got ", text_of(node)));
      }
      const std::string text =
          node.is_string() ? toml_string(node.as_string()->get()) : text_of(node);
      assignments.push_back({found, text, line});
    }
  }
  return assignments;
}

absl::StatusOr<std::vector<Assignment>> read_toml(const std::string& text, const std::string& file,
                                                  std::vector<std::string>& ignored) {
  toml::parse_result result = toml::parse(text, file);
  if (!result) {
    return at(absl::StrCat(file, ":", result.error().source().begin.line),
              std::string(result.error().description()));
  }
  return read_table(result.table(), file, ignored);
}

absl::Status unknown_variable(const std::string& name, const std::string& meant) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": no key of the job has this name",
                   meant.empty() ? "" : absl::StrCat(" (did you mean ", meant, "?)"),
                   "; unset it, or see skein config keys"));
}

/// `name` is a full one.
std::string environment_name(const std::string& name) {
  return absl::AsciiStrToUpper(
      absl::StrCat(kEnvironmentPrefix, absl::StrReplaceAll(name, {{".", "_"}})));
}

/// Variables that an engine of containers sets for a service whose name begins with "skein":
/// SKEIN_SERVICE_HOST, SKEIN_PORT_29400_TCP_ADDR and the like.
bool is_of_a_service(const std::string& name) {
  return name.find("_SERVICE_") != std::string::npos || name.ends_with("_PORT") ||
         name.find("_PORT_") != std::string::npos;
}

/// InvalidArgument if the variable was meant to be a key of the job: it is near one, or begins with
/// a section's name.
absl::Status check_variable(const std::string& name) {
  const std::string rest = name.substr(std::string(kEnvironmentPrefix).size());
  std::vector<std::string> names;
  bool has_section = false;
  for (const JobKey& key : job_keys()) {
    const std::string known = environment_name(key.full_name());
    names.push_back(known.substr(name.size() - rest.size()));
    // The right key without its section is as near as can be.
    if (names.back().ends_with("_" + rest)) return unknown_variable(name, known);
    has_section = has_section || rest.starts_with(absl::AsciiStrToUpper(key.section) + "_");
  }
  const std::string nearest = plans::nearest_name(rest, names);
  if (nearest.empty() && !has_section) return absl::OkStatus();  // It is for somebody else.
  return unknown_variable(name, nearest.empty() ? "" : kEnvironmentPrefix + nearest);
}

absl::Status add_environment(std::vector<Assignment>& assignments,
                             std::vector<std::string>& ignored) {
  std::set<std::string> known(std::begin(kOtherVariables), std::end(kOtherVariables));
  for (const JobKey& key : job_keys()) {
    const std::string name = environment_name(key.full_name());
    known.insert(name);
    if (const char* value = std::getenv(name.c_str())) assignments.push_back({&key, value, name});
  }
  for (const char* key : kKeysNoLongerUsed) {
    const std::string name = environment_name(key);
    known.insert(name);
    if (std::getenv(name.c_str()) != nullptr) ignored.push_back(ignored_line(name, name));
  }
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('='));
    if (!name.starts_with(kEnvironmentPrefix) || known.contains(name) || is_of_a_service(name)) {
      continue;
    }
    SKEIN_RETURN_IF_ERROR(check_variable(name));
  }
  return absl::OkStatus();
}

/// What is wrong with the value of a key, with where it is from. `message` begins with the key,
/// which is said once: a flag and a variable have it in their names.
absl::Status at_key(const std::string& origin, const std::string& key, const std::string& message) {
  const bool names_key = origin.starts_with("--") || origin.starts_with(kEnvironmentPrefix);
  if (!names_key || !message.starts_with(key)) return at(origin, message);
  return absl::InvalidArgumentError(absl::StrCat(origin, message.substr(key.size())));
}

/// What a key like `model.flavor` sets: these keys, unless they are set themselves.
void set_origins(LoadedJob& job, std::initializer_list<const char*> names, const char* origin) {
  for (const char* name : names) job.origins[absl::StrCat("model.", name)] = origin;
}

/// Whether the last word on each key is the same as the folder's; what says so in other words is
/// taken out, so that the folder's stay. `job` has the folder's model.
absl::Status check_claims(std::vector<Assignment>& assignments, const LoadedJob& job,
                          const std::string& folder) {
  std::map<const JobKey*, const Assignment*> last;  // A flag goes before the job file.
  for (const Assignment& each : assignments) last[each.key] = &each;
  std::set<const JobKey*> in_other_words;
  plans::JobSpec said = job.spec;
  said.model = plans::spelled_out(job.spec.model);
  for (const Assignment& each : assignments) {
    const JobKey& key = *each.key;
    const std::string name = key.full_name();
    plans::JobSpec given = job.spec;
    if (last.at(&key) != &each || !describes_model(name)) continue;
    if (!key.set(given, each.text).ok()) continue;  // Whoever sets it says so.
    const ModelClaim claim = compare_claim(key, given, job.spec);
    if (claim == ModelClaim::kSameInOtherWords) in_other_words.insert(&key);
    if (claim != ModelClaim::kOther) continue;
    return at_key(each.origin, name,
                  absl::StrCat(name, " = ", key.get(given), ": it is ", key.get(said), " in ",
                               folder, "/config.json; leave it out"));
  }
  std::erase_if(assignments,
                [&](const Assignment& each) { return in_other_words.contains(each.key); });
  return absl::OkStatus();
}

/// The model is that of the folder `model.from`. A key that says otherwise is refused.
absl::Status take_model(std::vector<Assignment>& assignments, LoadedJob& job) {
  const std::string origin = job.origins["model.from"];
  if (!job.spec.model.flavor.empty()) {
    return at_key(
        job.origins["model.flavor"], "model.flavor",
        "model.flavor: the folder of model.from says how large the model is; leave it out");
  }
  std::string folder;
  const absl::Status found =
      gpu::read_newest(job.spec.model_from, [&](const std::string& newest) -> absl::Status {
        folder = newest;
        SKEIN_ASSIGN_OR_RETURN(job.spec.model, gpu::read_model_config(folder));
        return absl::OkStatus();
      });
  if (!found.ok()) {
    return at_key(origin, "model.from",
                  absl::StrCat("model.from: ", std::string(found.message()),
                               absl::IsNotFound(found)
                                   ? "; give a folder with config.json and model.safetensors, as "
                                     "Hugging Face's save_pretrained makes it, or a run's folder"
                                   : ""));
  }
  for (const JobKey& key : job_keys()) {
    if (describes_model(key.full_name())) job.origins[key.full_name()] = "model.from";
  }
  return check_claims(assignments, job, folder);
}

absl::Status apply_defaults(std::vector<Assignment>& assignments, LoadedJob& job) {
  std::set<std::string> given;
  for (const Assignment& each : assignments) given.insert(each.key->full_name());
  if (!job.spec.model_from.empty() && !gives_whole_model(given)) {
    return take_model(assignments, job);
  }
  if (job.spec.model.name == "llama" || job.spec.model.name == "qwen2") {
    plans::apply_family(job.spec.model);
    set_origins(job, {"norm", "mlp", "bias", "qkv_bias", "position_embedding_type"}, "model.name");
  }
  if (job.spec.model.flavor.empty()) return absl::OkStatus();
  const std::string family = plans::family_of_flavor(job.spec.model.flavor);
  const std::string name = job.spec.model.name;
  if (job.origins.contains("model.name") && !family.empty() && name != family) {
    return at_key(job.origins["model.flavor"], "model.flavor",
                  absl::StrCat("model.flavor: ", job.spec.model.flavor, " is a ", family,
                               ", and model.name = \"", name, "\" (", job.origins["model.name"],
                               "); leave the latter out"));
  }
  if (absl::Status status = plans::apply_flavor(job.spec.model); !status.ok()) {
    return at_key(job.origins["model.flavor"], "model.flavor", std::string(status.message()));
  }
  set_origins(job, {"vocab_size", "n_layer", "n_head", "n_embd"}, "flavor");
  if (family.empty()) return absl::OkStatus();
  set_origins(job,
              {"name", "norm", "mlp", "bias", "qkv_bias", "position_embedding_type", "positions",
               "num_key_value_heads", "intermediate_size", "layer_norm_epsilon", "rope_theta",
               "rope_type", "rope_factor", "tie_word_embeddings"},
              "flavor");
  return absl::OkStatus();
}

/// Later assignments win; family and flavor set defaults before the keys that override them.
absl::Status assign_all(std::vector<Assignment> assignments, JobUse use, LoadedJob& job) {
  for (const bool is_first : {true, false}) {
    for (const Assignment& assignment : assignments) {
      const JobKey& key = *assignment.key;
      const std::string name = key.full_name();
      const bool sets_defaults =
          name == "model.name" || name == "model.flavor" || name == "model.from";
      if (sets_defaults != is_first) continue;
      if (absl::Status status = key.set(job.spec, assignment.text); !status.ok()) {
        return at_key(assignment.origin, name,
                      absl::StrCat(name, ": ", std::string(status.message())));
      }
      job.origins[name] = assignment.origin;
    }
    const bool takes_model = use == JobUse::kRun || job.spec.model_from.empty();
    if (is_first && takes_model) SKEIN_RETURN_IF_ERROR(apply_defaults(assignments, job));
  }
  const bool is_open = use == JobUse::kFindRun && !job.spec.model_from.empty();
  if (is_open) return absl::OkStatus();
  if (absl::Status status = plans::validate(job.spec); !status.ok()) {
    // Begins with the key's name: say where its value is from.
    const std::string message(status.message());
    const std::string key = message.substr(0, message.find(' '));
    const auto origin = job.origins.find(key);
    return origin == job.origins.end() ? status : at_key(origin->second, key, message);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadedJob> load_job(const std::string& path, const Overrides& overrides,
                                   JobUse use) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "job file"));
  return load_job_text(text, path, overrides, use);
}

absl::StatusOr<LoadedJob> load_job_text(const std::string& text, const std::string& name,
                                        const Overrides& overrides, JobUse use) {
  LoadedJob job;
  job.text = text;
  SKEIN_ASSIGN_OR_RETURN(std::vector<Assignment> assignments, read_toml(text, name, job.ignored));
  SKEIN_RETURN_IF_ERROR(add_environment(assignments, job.ignored));
  for (const auto& [key, value] : overrides) {
    const std::string flag = absl::StrCat("--", key);
    if (is_no_longer_used(key)) {
      job.ignored.push_back(ignored_line(flag, flag));
    } else {
      assignments.push_back({find_key(key), value, flag});
    }
  }
  SKEIN_RETURN_IF_ERROR(assign_all(std::move(assignments), use, job));
  return job;
}

void tell_ignored(const LoadedJob& job, const SayLine& say) {
  for (const std::string& line : job.ignored) {
    say ? say(line) : actors::print_error_line("skein: " + line);
  }
}

absl::StatusOr<plans::JobSpec> parse_job(const std::string& toml) {
  LoadedJob job;
  SKEIN_ASSIGN_OR_RETURN(std::vector<Assignment> assignments, read_toml(toml, "job", job.ignored));
  SKEIN_RETURN_IF_ERROR(assign_all(std::move(assignments), JobUse::kRun, job));
  return job.spec;
}

std::string to_toml(const plans::JobSpec& job, const std::map<std::string, std::string>* origins) {
  std::string text;
  std::string section;
  for (const JobKey& key : job_keys()) {
    if (key.section != section) {
      section = key.section;
      absl::StrAppend(&text, text.empty() ? "" : "\n", "[", section, "]\n");
    }
    std::string comment = key.help;
    if (origins != nullptr) {
      const auto origin = origins->find(key.full_name());
      absl::StrAppend(&comment, "  <", origin == origins->end() ? "default" : origin->second, ">");
    }
    absl::StrAppendFormat(&text, "%-40s # %s\n", absl::StrCat(key.name, " = ", key.get(job)),
                          comment);
  }
  return text;
}

absl::StatusOr<Overrides> take_overrides(std::vector<std::string>& arguments) {
  Overrides overrides;
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t dot = argument.find('.');
    const size_t equals = argument.find('=');
    if (!argument.starts_with("--") || dot == std::string::npos || dot > equals) {
      rest.push_back(argument);
      continue;
    }
    std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const JobKey* key = find_key(name);
    const size_t no = name.find(".no-");
    if (key == nullptr && no != std::string::npos) {
      const std::string denied = name.substr(0, no + 1) + name.substr(no + 4);
      key = find_key(denied);
      if (is_no_longer_used(denied) || (key != nullptr && key->type == "boolean")) {
        overrides.push_back({key != nullptr ? key->full_name() : denied, "false"});
        continue;
      }
      key = nullptr;
    }
    const std::string type = key != nullptr ? key->type : is_no_longer_used(name) ? "boolean" : "";
    if (type.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, ": unknown key", suggestion(name, all_names())));
    }
    if (key != nullptr) name = key->full_name();
    if (equals != std::string::npos) {
      overrides.push_back({name, argument.substr(equals + 1)});
      continue;
    }
    const bool has_next = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (type == "boolean" &&
        !(has_next && (arguments[i + 1] == "true" || arguments[i + 1] == "false"))) {
      overrides.push_back({name, "true"});
      continue;
    }
    if (!has_next) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value (", type, ")"));
    }
    overrides.push_back({name, arguments[++i]});
  }
  arguments = std::move(rest);
  return overrides;
}

std::string describe_keys() {
  const plans::JobSpec defaults;
  std::string text;
  for (const JobKey& key : job_keys()) {
    absl::StrAppendFormat(&text, "%-46s %-17s %-12s %s\n", key.full_name(), key.type,
                          key.get(defaults), key.help);
  }
  return text;
}

}  // namespace skein::cli
