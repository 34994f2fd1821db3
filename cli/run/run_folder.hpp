#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/config/job_file.hpp"

namespace skein::cli {

/// The folder of one run and what it holds from the start: config.toml, config.resolved.toml,
/// env.json, logs/, traces/. Nothing that exists is overwritten.
struct RunFolder {
  std::string path;    // Absolute.
  std::string job_id;  // Its name.

  std::string file(const std::string& name) const { return path + "/" + name; }
};

/// The job as it is resolved, in the folder's config.resolved.toml, whose last line says that it is
/// whole: keys that a cut file lacks would have their defaults. Reading one that lacks this line is
/// DataLoss, with what to do.
absl::Status write_resolved_job(const RunFolder& folder, const plans::JobSpec& job);
absl::StatusOr<std::string> read_resolved_job(const RunFolder& folder);

/// The id of the folder's run, which `take_run_id` would take, without writing anything: that in
/// its file run.id or, if the file is lost, the one that the folder's checkpoints say; empty: they
/// say none. Unavailable if it cannot be looked at or read, or if they do not all say the same.
absl::StatusOr<std::string> find_run_id(const RunFolder& folder);

/// The id of the folder's run, in its file run.id: made once, the same in all lives of the run's
/// coordinator, and that of no other run on any machine. Errors of `find_run_id`; Unavailable, too,
/// if it cannot be written.
absl::StatusOr<std::string> take_run_id(const RunFolder& folder);

/// Makes "<dump_folder>/<name>-<yyyymmdd-hhmmss>" (with "-2", "-3", ... if it exists). Unavailable
/// with the reason if it cannot be made.
absl::StatusOr<RunFolder> make_run_folder(const LoadedJob& job);
/// The same for what is simulated without a job: it has no config files.
absl::StatusOr<RunFolder> make_bare_run_folder(const std::string& dump_folder,
                                               const std::string& name);

/// Points "latest", beside the run's folder, at it: for a run that has something to go on from.
/// Unavailable with the reason if it cannot be made.
absl::Status point_latest_at(const RunFolder& folder);

/// The newest run of this very job in its dump folder that has begun and committed nothing yet: a
/// coordinator that was killed so early goes on in it. Empty if there is none.
std::string find_begun_run(const plans::JobSpec& job);

/// The newest run of a job of this name in its dump folder that has committed something. Empty if
/// there is none. Jobs may share a dump folder, and "latest" is there once.
std::string find_latest_run(const plans::JobSpec& job);

/// Makes those folders of a run that are not there. An error shows when somebody writes into them.
void ensure_subfolders(const RunFolder& folder);

/// An existing run's folder, to go on in. NotFound if it is none, Unavailable with the reason if
/// that cannot be seen.
absl::StatusOr<RunFolder> open_run_folder(const std::string& path);

}  // namespace skein::cli
