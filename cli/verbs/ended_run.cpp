#include "cli/verbs/ended_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/config/job_file.hpp"
#include "cli/config/json_text.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "gpu/checkpoint/trainer_state.hpp"
#include "gpu/files/mapped_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

/// The last step in a run's metrics.jsonl; null if there is none. An error if it cannot be read.
absl::StatusOr<Json> last_step(const RunFolder& folder) {
  constexpr std::streamoff kTailBytes = 1 << 20;  // Many lines more than follow the last step's.
  const std::string path = folder.file("metrics.jsonl");
  const absl::Status readable = gpu::MappedFile::open(path).status();
  if (absl::IsNotFound(readable)) return Json();
  SKEIN_RETURN_IF_ERROR(readable);
  std::ifstream file(path, std::ios::ate);
  file.seekg(std::max<std::streamoff>(0, file.tellg() - kTailBytes));
  Json last;
  for (std::string line; std::getline(file, line);) {
    Json row = parse_json(line);
    if (text_at(row, "kind") == "step") last = std::move(row);
  }
  return last;
}

/// What a run has on disk.
struct Saved {
  std::string checkpoint;   // The newest one's folder; empty: it has none.
  uint64_t left_steps = 0;  // What its workers have left is after so many; 0: nothing.
};

/// An error says what is to be put right before anybody can go on from it.
absl::StatusOr<Saved> find_saved(const RunFolder& folder) {
  SKEIN_ASSIGN_OR_RETURN(const std::string run, find_run_id(folder));
  const auto own = gpu::own_checkpoints(folder.path, run);
  if (!own.ok() && !absl::IsNotFound(own.status())) return own.status();
  return Saved{own.ok() ? own->folders.front() : "", gpu::newest_left_state(folder.path, run)};
}

/// Whether the newest checkpoint has the state after so many steps.
absl::StatusOr<bool> has_checkpoint(const absl::StatusOr<Saved>& saved, int64_t steps) {
  SKEIN_RETURN_IF_ERROR(saved.status());
  if (saved->checkpoint.empty()) return false;
  SKEIN_ASSIGN_OR_RETURN(const gpu::TrainerState state, gpu::read_trainer_state(saved->checkpoint));
  return state.steps_done >= static_cast<uint64_t>(steps);
}

/// How a run goes on that nobody runs any more.
std::string way_on(const RunFolder& folder, const absl::StatusOr<Saved>& saved) {
  const std::string resumed = absl::StrCat("skein train --resume ", folder.path, " goes on");
  if (!saved.ok()) {
    return absl::StrCat(resumed, " once this is put right: ", saved.status().message());
  }
  std::string from = saved->checkpoint.empty()
                         ? "the beginning, as it has no checkpoint"
                         : std::filesystem::path(saved->checkpoint).filename().string();
  if (saved->left_steps > 0) {
    from = absl::StrCat("step ", saved->left_steps,
                        " if what its workers have left of it is whole, else from ", from);
  }
  return absl::StrCat(resumed, " from ", from,
                      " (skein coordinator --resume ... --listen ADDRESS, with what ",
                      "they hold, if workers still wait for it there)");
}

}  // namespace

absl::Status print_ended_run(const RunFolder& folder, bool as_json) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, read_resolved_job(folder));
  SKEIN_ASSIGN_OR_RETURN(const plans::JobSpec job, parse_job(text));
  SKEIN_ASSIGN_OR_RETURN(const Json step, last_step(folder));
  const int64_t done = number_at<int64_t>(step, "step", 0);
  const bool has_all_steps = done >= job.training.steps;
  const absl::StatusOr<Saved> saved = find_saved(folder);
  absl::StatusOr<bool> is_last_saved = true;
  if (has_all_steps && job.checkpoint.enable) is_last_saved = has_checkpoint(saved, done);
  const bool is_complete = has_all_steps && is_last_saved.value_or(true);
  if (as_json) {
    Json json = {{"job", folder.job_id},  {"state", is_complete ? "done" : "ended"},
                 {"steps_done", done},    {"steps_total", job.training.steps},
                 {"folder", folder.path}, {"workers", Json::array()}};
    if (done > 0 && step.contains("loss")) json["loss"] = step["loss"];
    std::printf("%s\n", json_text(json, 2).c_str());
    return absl::OkStatus();
  }
  std::string line = absl::StrFormat("%s: the run has ended, at step %d/%d", folder.job_id, done,
                                     job.training.steps);
  const double loss = number_at<double>(step, "loss", NAN);
  if (done > 0 && !std::isnan(loss)) absl::StrAppendFormat(&line, ", loss %.4f", loss);
  if (!is_complete) {
    absl::StrAppend(&line, has_all_steps ? "; its last step is in no checkpoint" : "", "; ",
                    way_on(folder, saved));
  } else if (!is_last_saved.ok()) {
    absl::StrAppend(&line, "; its last step may not be saved: ", is_last_saved.status().message());
  }
  std::printf("%s\n", line.c_str());
  return absl::OkStatus();
}

}  // namespace skein::cli
