#include "cli/run/run_folder.hpp"

#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/run_id.hpp"
#include "actors/unguessable_bits.hpp"
#include "cli/config/json_text.hpp"
#include "cli/config/text_file.hpp"
#include "cli/version.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/files/check_there.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kResolvedJob[] = "config.resolved.toml";
constexpr char kLastLine[] = "\n# end of the resolved job\n";

/// Runs of one job that start within one second.
constexpr int kSameSecondMax = 1000;

std::string timestamp() {
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts);
  return text.data();
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string environment_json() {
  utsname system{};
  uname(&system);
  const Json json = {{"skein", kVersion},
                     {"host", system.nodename},
                     {"system", absl::StrCat(system.sysname, " ", system.release)},
                     {"machine", system.machine},
                     {"cpu", cpu_name()},
                     {"cores", std::thread::hardware_concurrency()},
                     {"compiler", __VERSION__},
                     {"pid", getpid()}};
  return json_text(json, 2) + "\n";
}

std::string resolved_text(const plans::JobSpec& job) {
  return absl::StrCat(to_toml(job, nullptr), kLastLine);
}

/// The newest run folder of a job of this name that is wanted; empty: there is none.
std::string newest_folder(const plans::JobSpec& job,
                          const std::function<bool(const fs::path&)>& is_wanted) {
  std::string newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(job.dump_folder, error)) {
    const fs::path& path = entry.path();
    // Its name has the time it began at.
    if (path.string() <= newest || !path.filename().string().starts_with(job.name + "-")) continue;
    if (is_wanted(path)) newest = path.string();
  }
  return newest;
}

/// Why what is in a folder does not tell whose it is: it may have been copied there. Empty: it
/// tells, or says nothing of a run.
std::string doubt_about(const gpu::RunsHere& here) {
  if (here.runs.empty()) return "";
  if (here.runs.size() > 1) return "checkpoints of several runs are here";
  if (!here.is_any_named) return "no complete checkpoint here says which one it was";
  return here.is_any_unnamed ? "not every checkpoint here says of which run it is" : "";
}

/// The id of a run whose folder does not have the file with it; empty: no checkpoint says one.
absl::StatusOr<std::string> id_of_checkpoints(const RunFolder& folder) {
  const std::string path = folder.file(actors::kRunIdName);
  const auto here = gpu::runs_of_checkpoints(folder.path);
  if (!here.ok()) {
    return absl::UnavailableError(absl::StrCat(path, " is lost, and ", here.status().message()));
  }
  const std::set<std::string>& runs = here->runs;
  if (const std::string doubt = doubt_about(*here); !doubt.empty()) {
    return absl::UnavailableError(absl::StrCat(path, " is lost, and ", doubt, " (",
                                               absl::StrJoin(runs, ", "),
                                               "); write the id of this run into that file"));
  }
  return runs.empty() || !actors::is_run_id(*runs.begin()) ? "" : *runs.begin();
}

/// The name has the second of the start; the rest tells it from runs on other machines.
std::string new_run_id(const RunFolder& folder) {
  const auto number = absl::Hex(actors::unguessable_bits(), absl::kZeroPad16);
  return absl::StrCat(folder.job_id, "-", number);
}

}  // namespace

absl::Status write_resolved_job(const RunFolder& folder, const plans::JobSpec& job) {
  return gpu::write_durably(folder.file(kResolvedJob), resolved_text(job));
}

absl::StatusOr<std::string> read_resolved_job(const RunFolder& folder) {
  const std::string path = folder.file(kResolvedJob);
  SKEIN_ASSIGN_OR_RETURN(std::string text, read_text_file(path, "resolved job"));
  if (absl::EndsWith(text, kLastLine)) return text;
  return absl::DataLossError(absl::StrCat(
      path, " has been cut: its last line is not \"", absl::StripAsciiWhitespace(kLastLine),
      "\"; restore it, or add that line if no key is missing (config.toml has what was given)"));
}

absl::StatusOr<std::string> find_run_id(const RunFolder& folder) {
  const absl::Status there = gpu::check_there(folder.file(actors::kRunIdName));
  if (there.ok()) return actors::read_run_id(folder.path);
  if (absl::IsNotFound(there)) return id_of_checkpoints(folder);
  return absl::UnavailableError(there.message());
}

absl::StatusOr<std::string> take_run_id(const RunFolder& folder) {
  const std::string path = folder.file(actors::kRunIdName);
  SKEIN_ASSIGN_OR_RETURN(std::string id, find_run_id(folder));
  if (!absl::IsNotFound(gpu::check_there(path))) return id;
  if (id.empty()) id = new_run_id(folder);
  SKEIN_RETURN_IF_ERROR(gpu::write_durably(path, id + "\n"));
  return actors::read_run_id(folder.path);
}

absl::StatusOr<RunFolder> make_run_folder(const LoadedJob& job) {
  SKEIN_ASSIGN_OR_RETURN(RunFolder folder,
                         make_bare_run_folder(job.spec.dump_folder, job.spec.name));
  SKEIN_RETURN_IF_ERROR(gpu::write_durably(folder.file("config.toml"), job.text));
  SKEIN_RETURN_IF_ERROR(write_resolved_job(folder, job.spec));
  return folder;
}

absl::StatusOr<RunFolder> make_bare_run_folder(const std::string& dump_folder,
                                               const std::string& run_name) {
  if (dump_folder.empty()) {
    return absl::InvalidArgumentError("job.dump_folder = \"\": must name a folder");
  }
  std::error_code error;
  const fs::path parent = fs::absolute(dump_folder, error);
  fs::create_directories(parent, error);
  const std::string base = absl::StrCat(run_name, "-", timestamp());
  RunFolder folder;
  for (int n = 1; n <= kSameSecondMax && folder.path.empty(); ++n) {
    const std::string name = n == 1 ? base : absl::StrCat(base, "-", n);
    // Only one process can be the one that makes it.
    if (fs::create_directory(parent / name, error)) {
      folder = {(parent / name).lexically_normal().string(), name};
    } else if (error) {
      break;
    }
  }
  if (folder.path.empty()) {
    return absl::UnavailableError(absl::StrCat("cannot make a run folder in ", parent.string(),
                                               ": ", error.message(), "; set job.dump_folder"));
  }
  ensure_subfolders(folder);
  SKEIN_RETURN_IF_ERROR(gpu::write_durably(folder.file("env.json"), environment_json()));
  return folder;
}

absl::Status point_latest_at(const RunFolder& folder) {
  const fs::path parent = fs::path(folder.path).parent_path();
  const fs::path temporary = parent / absl::StrCat("latest.", folder.job_id, ".tmp");
  std::error_code error;
  fs::remove(temporary, error);  // A process may have died here.
  fs::create_symlink(folder.job_id, temporary, error);
  if (!error) fs::rename(temporary, parent / "latest", error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot point ", (parent / "latest").string(), " at ",
                                             folder.job_id, ": ", error.message(),
                                             "; give the run folder itself instead of latest"));
}

std::string find_begun_run(const plans::JobSpec& job) {
  const std::string resolved = resolved_text(job);
  return newest_folder(job, [&](const fs::path& path) {
    std::error_code error;
    // The journal is made when the run begins.
    if (!fs::exists(path / "journal.sqlite", error)) return false;
    const auto config = read_text_file(path / kResolvedJob, "resolved job");
    const bool is_begun = fs::file_size(path / "metrics.jsonl", error) == 0;
    return config.ok() && *config == resolved && is_begun && !error;
  });
}

std::string find_latest_run(const plans::JobSpec& job) {
  return newest_folder(job, [&](const fs::path& path) {
    std::error_code error;
    const auto bytes = fs::file_size(path / "metrics.jsonl", error);
    if (error || bytes == 0 || !fs::exists(path / kResolvedJob, error)) return false;
    const auto config = read_text_file(path / kResolvedJob, "resolved job");
    const auto found = config.ok() ? parse_job(*config) : config.status();
    return found.ok() && found->name == job.name;
  });
}

void ensure_subfolders(const RunFolder& folder) {
  std::error_code error;
  for (const char* name : {"logs", "traces", "checkpoint"}) {
    fs::create_directory(folder.file(name), error);
  }
}

absl::StatusOr<RunFolder> open_run_folder(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::canonical(path, error);
  const bool is_missing = error == std::errc::no_such_file_or_directory ||
                          error == std::errc::not_a_directory ||
                          (!error && !fs::exists(folder / kResolvedJob, error) && !error);
  if (is_missing) {
    return absl::NotFoundError(
        absl::StrCat(path, " is no run folder (it has no ", kResolvedJob, ")"));
  }
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot look at ", path, ": ", error.message()));
  }
  return RunFolder{folder.string(), folder.filename().string()};
}

}  // namespace skein::cli
