#include "cli/verbs/text_workers.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/printing/stderr_lines.hpp"
#include "cli/config/job_file.hpp"
#include "cli/config/resume_keys.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

/// A process that draws text does not come back.
constexpr double kCoordinatorTimeoutSeconds = 1;

/// What workers go by: a job that is not trained.
plans::JobSpec job_of(const gpu::ModelSource& source, const DeviceNames& devices) {
  plans::JobSpec job;
  job.name = "text";
  job.model = source.model();
  job.training.seq_len = std::min(job.training.seq_len, job.model.positions);
  job.checkpoint.enable = false;
  job.elastic.coordinator_timeout_seconds = kCoordinatorTimeoutSeconds;
  job.device.threads = devices.threads;
  job.device.precision = devices.precision;
  return job;
}

}  // namespace

absl::StatusOr<std::unique_ptr<actors::TextProcess>> gather_text_workers(
    const gpu::ModelSource& source, const DecodingNeed& need, const TextWorkers& workers,
    const DeviceNames& devices) {
  if (devices.names != DeviceNames().names) {
    return absl::InvalidArgumentError(
        absl::StrCat("--devices ", devices.names, " and --listen ", workers.listen,
                     ": workers compute then, on the --device of each; leave one of them out"));
  }
  actors::TextOptions options;
  options.job = job_of(source, devices);
  options.job_config = to_toml(options.job, nullptr);
  options.config_digest = config_digest(options.job);
  std::error_code error;
  options.request.folder = std::filesystem::absolute(source.folder(), error).string();
  SKEIN_ASSIGN_OR_RETURN(options.request.digest, source.digest());
  options.request.positions = need.positions;
  options.request.added = std::min(need.added, plans::kTextStepMax);
  options.listen_address = workers.listen;
  options.insecure = workers.insecure;
  options.worker_count = workers.count;
  SKEIN_ASSIGN_OR_RETURN(auto process, actors::TextProcess::start(std::move(options)));
  actors::print_error_line(absl::StrCat("skein: waiting for ", workers.count,
                                        " workers: skein worker --join ", process->address()));
  SKEIN_RETURN_IF_ERROR(process->wait());
  return process;
}

}  // namespace skein::cli
