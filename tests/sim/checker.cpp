#include "tests/sim/checker.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "plans/base/check.hpp"
#include "plans/job/learning_rate.hpp"
#include "plans/plan/plan_ranks.hpp"
#include "plans/schedule/schedule_csv.hpp"
#include "plans/sync/policy_kind.hpp"
#include "tests/sim/part_memory.hpp"
#include "tests/sim/processes.hpp"

namespace skein::sim {
namespace {

/// Losses of other partitions differ by the order of sums.
constexpr double kLossTolerance = 1e-4;
/// Of a short round's few samples against the mean of all.
constexpr double kLossSlack = 1.05;
/// `applied_` of a model that a pipeline replica has changed since all pipeline replicas met.
constexpr uint64_t kOfPipeline = UINT64_MAX;
/// Processes of a loop that may be given a part before they are held back for longer than they
/// live: those of one host fewer than those that always come from another one.
constexpr size_t kLoopersMax = 8;
/// A worker has the model of a state, and a snapshot of it.
constexpr int kCopiesMax = 2;
/// States of a worker: those of the last two steps, and snapshots that are on their way.
constexpr size_t kStatesMax = 8;
/// A fault may be noticed by several, one after the other, and what is done about it may fail.
constexpr int kRewindsOfFault = 2;
constexpr size_t kPlansOfFault = 4;
/// Plans in a minute without any fault: the start, joiners, and what the planner finds to be
/// better.
constexpr size_t kPlansSpare = 12;
constexpr uint64_t kMinuteUs = 60'000'000;
/// From a look at the disk to a plan, with all that a planner may take in between.
constexpr uint64_t kSettledUs = 15'000'000;

/// The tensors of a model as a checkpoint names them, in the order of `digests_of`.
std::vector<std::string> tensor_names(const gpu::StageModel& model, const std::string& optimizer) {
  std::vector<std::string> names;
  for (const auto& parameter : model.parameters()) {
    names.push_back(parameter.name);
    for (const char* suffix : gpu::moment_suffixes(optimizer)) {
      names.push_back(parameter.name + suffix);
    }
  }
  return names;
}

/// CRC-32C of each of `count` tensors, as a checkpoint has it.
std::vector<uint32_t> digests_of(const gpu::StageModel& model, size_t count) {
  const WatchersRead reading;
  std::vector<uint32_t> digests;
  std::vector<float> values;
  const auto& parameters = model.parameters();
  const size_t kinds = parameters.empty() ? 0 : count / parameters.size();
  for (size_t i = 0; i < parameters.size(); ++i) {
    values.resize(static_cast<size_t>(plans::element_count(parameters[i])));
    for (size_t kind = 0; kind < kinds; ++kind) {
      const absl::Status status = model.read_state(i, gpu::kStateKinds.at(kind), values);
      SKEIN_CHECK(status.ok()) << std::string(status.message());
      digests.push_back(gpu::crc32c(std::as_bytes(std::span(values))));
    }
  }
  return digests;
}

uint64_t folded(const std::vector<uint32_t>& digests) {
  uint64_t all = 0xcbf29ce484222325;
  for (const uint32_t each : digests) all = (all ^ each) * 0x100000001b3;
  return all;
}

bool has_replica(const plans::PlanPart& part, plans::ReplicaId id) {
  return std::any_of(part.stages.begin(), part.stages.end(), [&](const plans::StagePart& stage) {
    return std::any_of(stage.replicas.begin(), stage.replicas.end(),
                       [&](const plans::ReplicaPlan& each) { return each.id == id; });
  });
}

std::string shape_of(const plans::Plan& plan) {
  std::string shape =
      absl::StrCat(plan.microbatch_count, "x", plan.microbatch_rows, " ",
                   std::string(plans::to_text(plan.schedule)), plan.recompute ? " recomputed" : "");
  for (const plans::StagePlan& stage : plan.stages) {
    absl::StrAppend(&shape, " |", stage.layers.begin, "-", stage.layers.end);
    for (const plans::ReplicaPlan& replica : stage.replicas) {
      absl::StrAppend(&shape, " ", replica.rows.begin, "+", replica.rows.count);
    }
  }
  // What a planner makes of one kind of schedule may differ in its order, and so in its sums.
  uint64_t order = 0;
  for (const char each : plans::to_csv(plan.actions)) {
    order = order * 131 + static_cast<unsigned char>(each);
  }
  absl::StrAppend(&shape, " order ", absl::Hex(order));
  return shape;
}

}  // namespace

Checker::Checker(World& world, JournalStore& store, const Disk& disk, plans::JobSpec job,
                 const TrainedModel* expected)
    : world_(world),
      store_(store),
      disk_(disk),
      job_(std::move(job)),
      expected_(expected),
      tensor_shapes_(gpu::tensor_shapes(job_.model, job_.optimizer.name)),
      patience_(world, job_.elastic.heartbeat_timeout_seconds,
                [this](const std::string& what) { fail(what); }) {
  store_.on_append = [this](const plans::CommitRecord& record) { on_append(record); };
  store_.on_rewind = [this](uint64_t first_step) { on_rewind(first_step); };
  store_.on_plan = [this](const plans::Plan& plan) { on_plan(plan); };
  if (!plans::may_run_pipelines(job_)) return;
  const auto on_violation = [this](const std::string& what) { fail(what); };
  claims_.emplace(job_, on_violation);
  carried_.emplace(on_violation);
  groups_.emplace(job_.sync.round_reducer == "adasum", on_violation,
                  [this](ProcessId process, plans::ReplicaId replica, uint64_t steps_done) {
                    on_global(process, replica, steps_done);
                  });
}

void RecoveryCounts::add(const RecoveryCounts& other) {
  kept += other.kept;
  snapshot += other.snapshot;
  checkpoint += other.checkpoint;
  commits += other.commits;
  generations += other.generations;
  own_cuts += other.own_cuts;
  terms += other.terms;
}

void Checker::fail(const std::string& what) {
  world_.trace("VIOLATION ", what);
  if (!failure_) failure_ = what;
}

void Checker::on_append(const plans::CommitRecord& record) {
  goes_back_to_.reset();
  ++counts_.commits;
  appended_us_ = world_.now_us();
  journaled_.emplace(record.generation, record.step);
  world_.note(record.step + 7);
  world_.trace("journal: step ", record.step, " generation ", record.generation, " term ",
               record.term, " loss ", record.loss);
  // The first one may follow a checkpoint of which the journal knows nothing.
  const uint64_t next = store_.commits.empty() ? record.step : store_.commits.rbegin()->first + 1;
  const auto batch = static_cast<uint64_t>(job_.training.global_batch_size);
  const auto plan = store_.plans.find(record.generation);
  const bool in_pipelines = plan != store_.plans.end() && plan->second.mode == plans::kLocalMode;
  const uint64_t first = in_pipelines ? record.first_sample / batch : record.step;
  // What the journal has lost the workers may still have, who then go on from there.
  const bool was_forgotten = first > next && first <= forgotten_steps_;
  if (first != next && !was_forgotten && !(in_pipelines && store_.commits.empty())) {
    fail(absl::StrCat("the journal has ", next, " steps and steps ", first, " to ", record.step,
                      " are appended"));
  }
  if (record.first_sample != first * batch || record.step < first ||
      record.sample_count != (record.step + 1 - first) * batch) {
    fail(absl::StrCat("step ", record.step, " has samples ", record.first_sample, "+",
                      record.sample_count));
  }
  if (in_pipelines) {
    carried_->on_round(claims_->claims());
    claims_->on_append(record, first);
  }
  if (record.term != store_.term) {
    fail(absl::StrCat("step ", record.step, " is appended in term ", record.term, " during term ",
                      store_.term));
  }
  if (store_.plans.empty() || record.generation != store_.plans.rbegin()->first) {
    fail(absl::StrCat("step ", record.step, " is committed in generation ", record.generation,
                      " which is not the newest one"));
  }
  model_.losses[record.step] = record.loss;
  if (expected_ != nullptr) check_loss(record);
}

void Checker::check_loss(const plans::CommitRecord& record) {
  const double expected = expected_->losses.at(record.step);
  if (!(std::abs(record.loss - expected) <= kLossTolerance * expected)) {
    fail(absl::StrCat("step ", record.step, " has loss ", record.loss, ", the undisturbed run ",
                      expected));
  }
}

void Checker::on_rewind(uint64_t first_step) {
  ++rewinds_;
  goes_back_to_.reset();
  if (!thrown_away_.empty()) fail(thrown_away_);
  world_.trace("journal: rewound to step ", first_step);
  // The newest checkpoint, which may be damaged, may have more steps than a journal that has lost
  // its newest ones.
  const bool was_forgotten = first_step <= forgotten_steps_;
  // To its very end takes nothing back: the checkpoint of steps that were taken back was damaged.
  const uint64_t end = store_.commits.empty() ? first_step : store_.commits.rbegin()->first + 1;
  if (first_step < end && ++rewinds_that_cost_ > kRewindsOfFault * (1 + faults_)) {
    fail(absl::StrCat("steps are taken back for the ", rewinds_that_cost_, "th time after ",
                      faults_, " faults"));
  }
  if (first_step > end && !was_forgotten) {
    fail(absl::StrCat("the journal is rewound to step ", first_step, " beyond its end"));
  }
}

/// That somebody is lost who was too slow may be heard after the orders that follow from it, and
/// before it is back.
void Checker::end_excuses() {
  std::erase_if(damaged_, [](const auto& copy) { return copy.expired(); });
  std::erase_if(cuts_, [this](const auto& ends) {
    return !world_.is_alive(ends.first) || !world_.is_alive(ends.second);
  });
}

void Checker::excuse_slow() {
  const bool was_too_slow =
      std::any_of(thrown_away_from_.begin(), thrown_away_from_.end(),
                  [this](ProcessId process) { return patience_.is_too_slow(process); });
  if (!was_too_slow) return;
  thrown_away_.clear();
  thrown_away_from_.clear();
  goes_back_to_ = newest_first_step_;
}

/// A plan that was assigned and never journaled, or that the journal has lost, is not known to the
/// next coordinator, which may give its generation to another one.
void Checker::on_coordinator_started(ProcessId process) {
  patience_.on_coordinator_started(process);
  std::erase_if(told_, [&](const auto& each) { return !world_.is_alive(each.first); });
  goes_back_to_.reset();
  check_has_checkpoint("the start of a coordinator");
  check_left();
  loopers_of_plans_.clear();
  parts_.clear();
  assembly_ = {};
  const uint64_t known = store_.plans.empty() ? 0 : store_.plans.rbegin()->first;
  std::erase_if(digests_, [&](const auto& each) { return std::get<0>(each.first) > known; });
  seen_generations_.erase(seen_generations_.upper_bound(known), seen_generations_.end());
  for (auto& [steps, live] : live_) {
    if (live.generation > known) live.generation = 0;
  }
}

void Checker::on_plan(const plans::Plan& plan) {
  for (const plans::PlanPart& part : std::exchange(parts_[plan.generation], {})) {
    const std::string what = difference(part, plan);
    if (!what.empty()) fail(absl::StrCat("a worker was told ", what));
  }
  parts_.erase(parts_.begin(), parts_.upper_bound(plan.generation));
  ++counts_.generations;
  check_changes();
  if (plan.mode == plans::kLocalMode && plans::rank_paths(plan).size() > 1) ++counts_.own_cuts;
  const auto shape = shapes_.insert(shape_of(plan)).first;
  world_.trace("plan ", plan.generation, ": ", *shape);
  if (!store_.plans.empty() && plan.generation <= store_.plans.rbegin()->first) {
    fail(absl::StrCat("generation ", plan.generation, " is assigned after ",
                      store_.plans.rbegin()->first));
  }
  for (const plans::StagePlan& stage : plan.stages) {
    for (const plans::ReplicaPlan& replica : stage.replicas) {
      const ProcessId process = patience_.process_of(replica.worker);
      if (loopers_.contains(process)) loopers_of_plans_.insert(process);
    }
  }
  if (loopers_of_plans_.size() > kLoopersMax) {
    fail(absl::StrCat("plans gave a part to ", loopers_of_plans_.size(),
                      " processes of a loop, one after the other"));
  }
}

void Checker::check_changes() {
  planned_us_.push_back(world_.now_us());
  while (planned_us_.front() + kMinuteUs < world_.now_us()) planned_us_.pop_front();
  if (planned_us_.size() <= kPlansSpare + kPlansOfFault * static_cast<size_t>(faults_)) return;
  fail(absl::StrCat(planned_us_.size(), " plans in a minute after ", faults_, " faults"));
}

void Checker::on_superseded(ProcessId process) {
  superseded_.insert(process);
  on_coordinator_killed();
}

void Checker::on_event(const actors::EventReport& report) {
  world_.trace("event ", report.name, ": ", report.text);
  if (report.name == "run.rolled_back") ++rollback_events_;
  if (report.name == "checkpoint.adopted") left_.clear();  // What is newer is not whole.
  patience_.on_event(report);
  excuse_slow();
  if (report.name == "worker.lost") {
    plans::WorkerId lost;
    SKEIN_CHECK(absl::SimpleAtoi(report.fields.at("worker"), &lost.value));
    const ProcessId process = patience_.process_of(lost);
    told_.erase(process);
    if (groups_) groups_->on_lost(process);
  }
  // With these it may have changed; each look reads the folder.
  if (report.name.starts_with("checkpoint.") || report.name.starts_with("run.")) {
    check_has_checkpoint(report.name);
  }
  // Here nothing is lost on a connection that lives.
  if (report.name == "step.stuck") fail(report.text);
  // All processes see the same files here.
  if (report.name == "worker.lost" &&
      report.text.find("cannot read the checkpoint") != std::string::npos) {
    fail(report.text);
  }
}

/// Once there has been one, there always is one.
void Checker::check_has_checkpoint(const std::string& when) {
  if (!had_checkpoint_ || disk_.has_checkpoint()) return;
  fail(absl::StrCat("no complete checkpoint is left at ", when));
}

/// Whoever dies between two operations on files leaves the checkpoints that there were, or a new
/// one that is whole.
void Checker::on_cut_short() {
  had_checkpoint_ = had_checkpoint_ || disk_.has_checkpoint();
  const std::string when = "a death between two operations on files";
  check_has_checkpoint(when);
  const auto folders = gpu::complete_checkpoints(disk_.run_folder());
  if (!folders.ok()) return;
  for (const std::string& folder : *folders) {
    const std::vector<std::string> faults = gpu::find_faults(folder);
    if (!faults.empty() && !disk_.is_damaged(folder)) {
      return fail(absl::StrCat("COMPLETE after ", when, ", but ", faults.front()));
    }
  }
}

void Checker::on_shard_begun(ProcessId process, const std::string& path) {
  const auto other = shards_.find(path);
  if (other != shards_.end()) {
    fail(absl::StrCat(world_.name(process), " and ", world_.name(other->second), " both write ",
                      path));
  }
  shards_.emplace(path, process);
}

void Checker::on_shard_ended(ProcessId process, const std::string& path) {
  const auto [first, last] = shards_.equal_range(path);
  const auto own =
      std::find_if(first, last, [&](const auto& each) { return each.second == process; });
  if (own != last) shards_.erase(own);
}

void Checker::on_killed(ProcessId process) {
  std::erase_if(shards_, [&](const auto& each) { return each.second == process; });
}

void Checker::on_coordinator_killed() {
  ++coordinator_kills_;
  if (groups_) groups_->on_coordinator_killed();
}

void Checker::on_given_up(ProcessId process) {
  const auto hosted = hosted_.find(process);
  if (!job_.checkpoint.enable || hosted == hosted_.end()) return;
  if (left_in_part_.contains(process) || lost_devices_.contains(process)) return;
  for (const Held& held : hosted->second.replicas) {
    const auto applied = applied_.find(held.model);
    const auto updated = updated_in_.find(held.model);
    if (applied == applied_.end() || updated == updated_in_.end()) continue;
    const auto record = store_.commits.find(applied->second - 1);
    const bool is_of_run =
        record != store_.commits.end() && record->second.generation == updated->second;
    if (!is_of_run) continue;
    const plans::PlanPart& plan = assignments_.at({process, hosted->second.generation}).plan;
    if (plan.mode == plans::kLocalMode)
      continue;  // Who has not heard of the commit leaves nothing.
    const plans::LayerRange layers = plans::stage_at(plan, held.stage).layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      Left& left = left_[{applied->second, updated->second}];
      left.layers.insert(layer);
      left.since_us = world_.now_us();
    }
  }
}

/// A run that stops in order loses nothing that is committed.
void Checker::on_result(const actors::RunResult& result) {
  keeps_nothing_ = !job_.checkpoint.enable;
  if (!result.stopped_early || !job_.checkpoint.enable) return;
  if (some_cannot_save_ && result.keeps_state) return;  // They write what they hold.
  const auto reader = gpu::CheckpointReader::open(disk_.run_folder());
  const uint64_t durable = reader.ok() ? (*reader)->trainer_state().steps_done : 0;
  const auto [step, who] = newest_living_state(durable, {});
  if (result.is_kept_whole && step == durable && !has_told_all_after(durable)) {
    return fail(absl::StrCat("the run says that workers keep what is not saved, and after step ",
                             durable, " they have nothing whole"));
  }
  if (step == durable) return;
  fail(absl::StrCat("the run stops with a checkpoint of step ", durable, ", and", who,
                    " hold all state of step ", step));
}

/// All layers are there, and the run has not taken it back; nor has the journal forgotten it.
bool Checker::is_whole(const std::pair<uint64_t, uint64_t>& name, const Left& left) const {
  const auto& [steps, generation] = name;
  if (static_cast<int64_t>(left.layers.size()) < plans::layer_count(job_.model)) return false;
  const auto record = store_.commits.find(steps - 1);
  return record != store_.commits.end() && record->second.generation == generation;
}

/// The next life of the coordinator has looked for what the workers of the last one have left. That
/// of the last step it finds before it would go back.
void Checker::check_left() {
  const auto last = static_cast<uint64_t>(job_.training.steps);
  for (const auto& [name, left] : std::exchange(left_, {})) {
    if (name.first >= last) left_[name] = left;
    if (name.first >= last || !is_whole(name, left)) continue;
    const auto reader = gpu::CheckpointReader::open(disk_.run_folder());
    const uint64_t found = reader.ok() ? (*reader)->trainer_state().steps_done : 0;
    if (found >= name.first) continue;
    fail(absl::StrCat("workers have left the whole state of step ", name.first,
                      ", and the newest checkpoint is of step ", found));
  }
}

/// Newer than what a plan starts from; what was left a moment ago may not have been seen. Empty:
/// nothing.
std::string Checker::left_state_after(uint64_t first_step) const {
  for (const auto& [name, left] : left_) {
    const bool is_old = left.since_us + kSettledUs <= world_.now_us();
    if (name.first <= first_step || !is_old || !is_whole(name, left)) continue;
    return absl::StrCat("going back to step ", first_step,
                        " though workers have left the whole state of step ", name.first);
  }
  return "";
}

void Checker::on_checkpoint(const actors::CheckpointReport& report) {
  had_checkpoint_ = true;
  world_.trace("complete: ", report.path);
  // The report of a coordinator that was paused may come when a newer one has taken its place.
  if (disk_.has_replaced(report.path)) return;
  // What was left up to that step went when this was whole, whatever has become of it since.
  const uint64_t still_left = gpu::newest_left_state(disk_.run_folder(), "");
  std::erase_if(left_, [&](const auto& each) {
    return each.first.first <= report.step && each.first.first > still_left;
  });
  if (disk_.is_damaged(report.path)) return;  // Before the paused coordinator could report it.
  check_has_checkpoint("a completion");
  const auto listing = gpu::read_listing(report.path);
  if (!listing.ok()) {
    return fail(absl::StrCat("COMPLETE, but ", std::string(listing.status().message())));
  }
  const std::string fault = fault_of(report, *listing);
  if (!fault.empty()) return fail(absl::StrCat("COMPLETE, but ", fault));
  const auto live = live_.find(report.step);
  if (live == live_.end()) return fail(absl::StrCat("nobody had ", report.step, " steps"));
  for (const auto& [name, file] : *listing) {
    for (const auto& [tensor, digest] : file.tensors) {
      const auto found = live->second.tensors.find(tensor);
      if (found != live->second.tensors.end() && found->second.digest == digest) continue;
      return fail(absl::StrCat("tensor ", tensor, " of the checkpoint of step ", report.step,
                               " is not what was live then"));
    }
  }
}

/// What is wrong with a complete checkpoint; empty: nothing. All of its bytes are read. Its index
/// and its headers, which depend on the plan, are parsed once for each one, after the disk has
/// failed, and for the last step, whose checkpoint is what the run comes to.
std::string Checker::fault_of(const actors::CheckpointReport& report, const gpu::Listing& listing) {
  const uint64_t plan = store_.plans.empty() ? 0 : store_.plans.rbegin()->first;
  const bool is_last = report.step >= static_cast<uint64_t>(job_.training.steps);
  if (std::exchange(looked_through_in_, plan) != plan || is_last || disk_.has_failed()) {
    const std::vector<std::string> faults = gpu::find_faults(report.path);
    return faults.empty() ? "" : faults.front();
  }
  size_t found = 0;
  for (const auto& [name, file] : listing) {
    const std::vector<std::string> faults = gpu::find_file_faults(report.path, name, file);
    if (!faults.empty()) return faults.front();
    for (const auto& [tensor, digest] : file.tensors) found += tensor_shapes_.count(tensor);
  }
  if (found == tensor_shapes_.size()) return "";
  return absl::StrCat("it has ", found, " tensors of ", tensor_shapes_.size());
}

void Checker::check_against_live(const Held& held, const std::vector<uint32_t>& digests,
                                 uint64_t generation, uint64_t steps_done) {
  const auto live = live_.find(steps_done);
  // Who was paused prepares an older plan, for a past that was taken back meanwhile.
  if (live == live_.end() || live->second.generation > generation) return;
  for (size_t n = 0; n < digests.size(); ++n) {
    const auto found = live->second.tensors.find(held.tensors[n]);
    if (found == live->second.tensors.end() || found->second.digest == digests[n]) continue;
    return fail(absl::StrCat("stage ", held.stage, " starts at step ", steps_done, " with another ",
                             held.tensors[n], " than was live then"));
  }
}

void Checker::on_control(ProcessId from, ProcessId to, const net::ControlMessage& message,
                         bool arrives) {
  const auto envelope = *message;
  const auto body = envelope.getBody();
  // What it had sent before may come late, to who was paused.
  const bool tells_to_update =
      body.isPipelineCommit() || (body.isClaim() && job_.sync.claims_in_flight > 1);
  const bool makes_void = body.isAssign() || (arrives && tells_to_update);
  if (superseded_.contains(from) && makes_void) void_parts_[to] = envelope.getGeneration();
  if (superseded_.contains(from) || superseded_.contains(to)) return;
  if (strangers_.contains(from)) return patience_.on_control(from, to, envelope, arrives);
  if (claims_) {
    claims_->on_control(to, envelope, arrives);
    groups_->on_control(from, envelope, arrives);
    carried_->on_control(envelope, arrives);
  }
  patience_.on_control(from, to, envelope, arrives);
  if (arrives) check_identity(to, envelope);
  if (arrives && body.isAssign()) check_kept(to, message);
  if (arrives) return;
  if (body.isCommit()) check_commit(envelope, to);
  if (body.isStart()) {
    started_us_ = world_.now_us();
    end_excuses();
  }
  if (body.isStop() && body.getStop().getReason() == "drained") check_let_go(to);
  if (body.isQuiesced()) check_inventory(from, body.getQuiesced());
  if (body.isStart()) told_.erase(to);  // What the plan does not need goes.
  if (body.isFailed()) check_failed(from, envelope);
  if (!body.isAssign()) return;
  check_part(message);
  if (seen_generations_[envelope.getGeneration()]) return;
  seen_generations_[envelope.getGeneration()] = true;
  const auto assign = body.getAssign();
  thrown_away_ = living_state_after(assign.getFirstStep());
  thrown_away_from_.clear();
  if (!thrown_away_.empty()) {
    for (const auto& [process, hosted] : hosted_) {
      const uint64_t without = newest_living_state(assign.getFirstStep(), process).first;
      if (without <= assign.getFirstStep()) thrown_away_from_.insert(process);
    }
  }
  newest_first_step_ = assign.getFirstStep();
  excuse_slow();
  if (thrown_away_.empty()) thrown_away_ = left_state_after(assign.getFirstStep());
  const uint64_t next = store_.commits.empty() ? 0 : store_.commits.rbegin()->first + 1;
  // A full disk may keep the journal until somebody is back who was lost when that was decided.
  if (goes_back_to_ && assign.getFirstStep() >= *goes_back_to_) {
    thrown_away_.clear();
  } else if (thrown_away_.empty() && assign.getFirstStep() < next) {
    goes_back_to_ = assign.getFirstStep();
  }
  if (seen_generations_.size() == 1) return;
  if (assign.getFromCheckpoint()) {
    ++counts_.checkpoint;
  } else if (assign.getFirstStep() < next) {
    ++counts_.snapshot;
  } else {
    ++counts_.kept;
  }
}

/// A worker holds a state as a model that trains and as a snapshot, not once more for each plan.
void Checker::check_inventory(ProcessId worker, net::schema::Quiesced::Reader quiesced) {
  std::map<std::array<uint64_t, 4>, int> copies;
  std::set<std::pair<uint64_t, uint64_t>> states;
  std::vector<ToldLayers>& told = told_[worker];
  told.clear();
  for (auto each : quiesced.getInventory()) {
    const auto begin = static_cast<int64_t>(each.getLayerBegin());
    const auto end = static_cast<int64_t>(each.getLayerEnd());
    told.push_back({each.getStep(), each.getGeneration(), {begin, end}});
    const std::array<uint64_t, 4> name{each.getStep(), each.getLayerBegin(), each.getLayerEnd(),
                                       each.getGeneration()};
    states.emplace(each.getStep(), each.getGeneration());
    if (++copies[name] <= kCopiesMax) continue;
    return fail(absl::StrCat("p", worker, " holds layers ", name[1], " to ", name[2], " of step ",
                             name[0], " more than ", kCopiesMax, " times"));
  }
  if (states.size() <= kStatesMax) return;
  fail(absl::StrCat("p", worker, " holds layers of ", states.size(), " states"));
}

/// Workers that are not lost have told, the last time they were asked, of all layers of one
/// committed step above `least`: as models or as snapshots, whose bits are checked where a plan
/// begins with them.
bool Checker::has_told_all_after(uint64_t least) const {
  std::map<std::pair<uint64_t, uint64_t>, std::set<int64_t>> found;
  for (const auto& [process, told] : told_) {
    if (lost_devices_.contains(process)) continue;
    for (const ToldLayers& each : told) {
      std::set<int64_t>& layers = found[{each.steps, each.generation}];
      for (int64_t layer = each.layers.begin; layer < each.layers.end; ++layer) {
        layers.insert(layer);
      }
    }
  }
  return std::any_of(found.begin(), found.end(), [&](const auto& state) {
    const auto& [steps, generation] = state.first;
    const auto record = store_.commits.find(steps - 1);
    return steps > least && record != store_.commits.end() &&
           record->second.generation == generation &&
           static_cast<int64_t>(state.second.size()) == plans::layer_count(job_.model);
  });
}

/// Whoever says that it has no memory for its part has none.
void Checker::check_failed(ProcessId from, const net::schema::Envelope::Reader& envelope) {
  const auto failed = envelope.getBody().getFailed();
  const bool lacks_memory = failed.getStays() && !failed.getBadInput();
  if (lacks_memory) some_cannot_save_ = true;  // It can be given no part of a last plan.
  if (device_bytes_ == 0 || !lacks_memory || incapable_.contains(from)) return;
  const auto found = assignments_.find({from, envelope.getGeneration()});
  if (found != assignments_.end() && found->second.device_bytes > device_bytes_) return;
  const int64_t bytes = found == assignments_.end() ? 0 : found->second.device_bytes;
  fail(absl::StrCat(world_.name(from), " has ", device_bytes_, " bytes of memory for its part of ",
                    bytes, ", and gives it up: ", failed.getReason().cStr()));
}

/// The workers are told the plan of the journal, each what it has to know of it.
void Checker::check_part(const net::ControlMessage& message) {
  const absl::StatusOr<net::Envelope> envelope = net::decode(message);
  if (!envelope.ok()) return fail(std::string(envelope.status().message()));
  const auto& assign = std::get<net::Assign>(envelope->body);
  const auto journaled = store_.plans.find(assign.plan.generation);
  if (journaled == store_.plans.end()) {
    parts_[assign.plan.generation].push_back(assign.plan);
  } else if (const std::string what = difference(assign.plan, journaled->second); !what.empty()) {
    fail(absl::StrCat("a worker is told ", what));
  }
  const std::optional<plans::Plan> plan = assembly_.add(assign.plan);
  if (plan && claims_) claims_->on_plan(*plan, assign.restore.first_step);
}

void Checker::check_identity(ProcessId to, const net::schema::Envelope::Reader& envelope) {
  const auto body = envelope.getBody();
  if (body.isAssign()) {
    const uint64_t digest = body.getAssign().getConfigDigest();
    config_digests_[envelope.getGeneration()] = digest;
    if (digests_of_terms_.try_emplace(envelope.getTerm(), digest).first->second != digest) {
      fail(absl::StrCat("plans of term ", envelope.getTerm(), " have two configurations"));
    }
  }
  if (!body.isJoined() || strangers_.contains(to)) return;  // Who lies serves whom it likes.
  ids_[to] = {static_cast<uint32_t>(body.getJoined().getWorker())};
  const std::string run = body.getJoined().getRun().cStr();
  const auto [known, is_new] = runs_.try_emplace(to, run);
  if (known->second == run) return;
  fail(absl::StrCat(world_.name(to), " serves ", known->second, " and is taken in by ", run));
}

/// Under local updates models are ahead of what is committed: without a copy of that, whoever lives
/// holds nothing to go on from.
void Checker::check_kept(ProcessId to, const net::ControlMessage& message) {
  const absl::StatusOr<net::Envelope> envelope = net::decode(message);
  if (!envelope.ok()) return fail(std::string(envelope.status().message()));
  const auto& assign = std::get<net::Assign>(envelope->body);
  if (job_.elastic.snapshot_interval == 0 || assign.plan.mode != plans::kLocalMode) return;
  for (const plans::StagePart& stage : assign.plan.stages) {
    const bool hosts =
        std::any_of(stage.replicas.begin(), stage.replicas.end(),
                    [&](const plans::ReplicaPlan& each) { return each.worker == ids_[to]; });
    if (!hosts || assign.snapshot_peers.contains(stage.stage)) continue;
    fail(absl::StrCat("nobody keeps snapshots of stage ", stage.stage, ", of which ",
                      world_.name(to), " has a replica"));
  }
}

void Checker::check_commit(const net::schema::Envelope::Reader& envelope, ProcessId to) {
  const uint64_t step = envelope.getBody().getCommit().getStep();
  const uint64_t generation = envelope.getGeneration();
  const auto record = store_.commits.find(step);
  if (record == store_.commits.end()) {
    return fail(absl::StrCat("commit ", step, " is sent and is not in the journal"));
  }
  if (record->second.generation != generation || record->second.term != envelope.getTerm()) {
    fail(absl::StrCat("commit ", step, " is sent in generation ", generation, " term ",
                      envelope.getTerm(), " and journaled in ", record->second.generation, ", ",
                      record->second.term));
  }
  auto [last, is_first] = last_commit_.try_emplace({to, envelope.getTerm(), generation}, step);
  // Who lost its connection for a while may miss some.
  if (!is_first && step <= last->second) {
    fail(absl::StrCat("commit ", step, " follows commit ", last->second, " in generation ",
                      generation));
  }
  last->second = step;
}

void Checker::on_prepare(ProcessId process, const actors::PrepareRequest& request) {
  const uint64_t generation = request.plan.generation;
  Assignment& assignment = assignments_[{process, generation}];
  assignment = {request.plan, request.first_step, request.from_checkpoint, request.job.optimizer};
  if (device_bytes_ > 0) {
    assignment.device_bytes =
        part_bytes(request.job, request.passes_in_flight, request.plan, request.worker);
  }
  const auto digest = config_digests_.find(generation);
  // The plan of a coordinator in whose place another one is: it has no effect, and is not followed.
  if (digest == config_digests_.end() && !superseded_.empty()) return;
  if (digest != config_digests_.end() && config_digest(request.job) == digest->second) return;
  fail(absl::StrCat(world_.name(process), " prepares generation ", generation,
                    " with another configuration: ", config_text(request.job)));
}

void Checker::on_prepared(ProcessId process, const actors::PreparedReplicas& result) {
  if (!result.status.ok()) return;
  const auto found = assignments_.find({process, result.generation});
  if (found == assignments_.end()) return;
  const Assignment& assignment = found->second;
  Hosted& hosted = hosted_[process];
  hosted = {result.generation, {}};
  if (has_void_part(process)) return;
  if (claims_) claims_->on_prepared(process, result.generation);
  for (const actors::PreparedReplica& replica : result.replicas) {
    if (!has_replica(assignment.plan, replica.id)) continue;
    const auto [applied, is_new] = applied_.try_emplace(replica.model, assignment.first_step);
    if (!is_new && applied->second != assignment.first_step) {
      fail(absl::StrCat("a model with ", applied->second, " steps goes on as if it had ",
                        assignment.first_step, " in generation ", result.generation));
    }
    // What it is made of is as good as what made it: nobody else need hold that any more.
    const auto last = store_.commits.find(assignment.first_step - 1);
    if (last != store_.commits.end()) {
      updated_in_.try_emplace(replica.model, last->second.generation);
    }
    if (replica.options.optimizer != assignment.optimizer) {
      fail(absl::StrCat(world_.name(process), " trains generation ", result.generation,
                        " with a model of another configuration"));
    }
    hosted.replicas.push_back({replica.id, plans::stage_of(assignment.plan, replica.id),
                               replica.model, tensor_names(*replica.model, job_.optimizer.name)});
    const Held& held = hosted.replicas.back();
    const std::vector<uint32_t> digests = digests_of(*held.model, held.tensors.size());
    check_against_live(held, digests, result.generation, assignment.first_step);
    check_replica(result.generation, held, digests, assignment.first_step);
    if (!groups_) continue;
    const int32_t stage = hosted.replicas.back().stage;
    groups_->on_prepared(process, result.generation, replica.id, stage, replica.model);
    carried_->on_prepared(process, result.generation, replica.id, stage);
  }
}

bool Checker::has_void_part(ProcessId process) const {
  const auto part = void_parts_.find(process);
  const auto hosted = hosted_.find(process);
  return part != void_parts_.end() && hosted != hosted_.end() &&
         part->second == hosted->second.generation;
}

void Checker::on_read(ProcessId process, uint64_t sample) {
  if (claims_ && !has_void_part(process)) claims_->on_read(process, sample);
}

void Checker::on_update(ProcessId process) {
  if (has_void_part(process)) return;
  Hosted& hosted = hosted_[process];
  const auto found = assignments_.find({process, hosted.generation});
  if (found != assignments_.end() && found->second.plan.mode == plans::kLocalMode) {
    return on_pipeline_update(process);
  }
  for (const Held& held : hosted.replicas) {
    uint64_t& applied = applied_[held.model];
    // It may be void by now, if the process was away: its state is then.
    if (!journaled_.contains({hosted.generation, applied})) {
      fail(absl::StrCat(world_.name(process), " applies step ", applied, " in generation ",
                        hosted.generation, ", which was never in the journal"));
    }
    ++applied;
    updated_in_[held.model] = hosted.generation;
    world_.trace(world_.name(process), " has applied ", applied, " steps, stage ", held.stage,
                 " generation ", hosted.generation);
    check_replica(hosted.generation, held, digests_of(*held.model, held.tensors.size()), applied);
    keep_if_late(held, applied);
  }
}

void Checker::on_copied(ProcessId process, uint64_t group) {
  if (!groups_ || has_void_part(process)) return;
  groups_->on_copied(process, group);
  carried_->on_copied(process, group);
}

void Checker::on_update_begun(ProcessId process) {
  if (!groups_ || has_void_part(process)) return;
  groups_->on_update_begun(process);
  carried_->on_update_begun(process);
}

void Checker::on_pipeline_update(ProcessId process) {
  for (const Held& held : hosted_[process].replicas) applied_[held.model] = kOfPipeline;
  world_.trace(world_.name(process), " has made an update");
  const std::optional<plans::SampleClaim> claim = claims_->on_update(process);
  if (claim) carried_->on_update(process, *claim);
  const bool has_rate = claim && job_.optimizer.name == "sgd" && !has_other_keys_;
  const auto batch = static_cast<uint64_t>(job_.training.global_batch_size);
  groups_->on_update(process, has_rate ? std::optional(plans::learning_rate(
                                             job_, static_cast<int64_t>(claim->first / batch)))
                                       : std::nullopt);
}

void Checker::on_global(ProcessId process, plans::ReplicaId replica, uint64_t steps_done) {
  const Hosted& hosted = hosted_[process];
  for (const Held& held : hosted.replicas) {
    if (held.id != replica) continue;
    applied_[held.model] = steps_done;
    updated_in_[held.model] = hosted.generation;
    check_replica(hosted.generation, held, digests_of(*held.model, held.tensors.size()),
                  steps_done);
    keep_if_late(held, steps_done);
  }
}

/// What runs are compared by.
void Checker::keep_if_late(const Held& held, uint64_t steps_done) {
  const auto steps = static_cast<uint64_t>(job_.training.steps);
  if (steps_done + 1 == steps) keep_weights(*held.model, model_.weights);
  if (steps_done == steps) keep_weights(*held.model, model_.final_weights);
}

void Checker::check_replica(uint64_t generation, const Held& held,
                            const std::vector<uint32_t>& digests, uint64_t steps_done) {
  const uint64_t digest = folded(digests);
  world_.note(digest);
  const auto [known, is_first] = digests_.try_emplace({generation, held.stage, steps_done}, digest);
  // Another replica of the stage has said the same.
  if (!is_first && known->second == digest) return;
  Live& live = live_[steps_done];
  if (live.generation <= generation) {  // A late one may take a step that is void by now.
    live.generation = generation;
    for (size_t n = 0; n < digests.size(); ++n) {
      LiveTensor& tensor = live.tensors[held.tensors[n]];
      if (tensor.seen_in == generation && tensor.digest != digests[n]) {
        return fail(absl::StrCat("two copies of ", held.tensors[n], " differ after ", steps_done,
                                 " steps in generation ", generation));
      }
      tensor = {digests[n], generation};
    }
  }
  if (known->second == digest) return;
  fail(absl::StrCat("replicas of stage ", held.stage, " differ after ", steps_done,
                    " steps in generation ", generation));
}

std::string Checker::living_state_after(uint64_t first_step) const {
  const auto [step, who] = newest_living_state(first_step, {});
  if (step <= first_step) return "";
  return absl::StrCat("the run goes back to step ", first_step, ", and", who,
                      " live and hold all state of step ", step);
}

/// The newest step above `least` whose whole state is held by processes that live, and by whom,
/// without one of them; `least`: there is none.
std::pair<uint64_t, std::string> Checker::newest_living_state(
    uint64_t least, std::optional<ProcessId> without) const {
  const bool is_excused = !damaged_.empty() || !cuts_.empty() || world_.now_us() < excused_us_;
  if (is_excused || store_.commits.empty()) return {least, ""};
  const int64_t layers = plans::layer_count(job_.model);
  for (uint64_t step = store_.commits.rbegin()->first + 1; step > least; --step) {
    const auto record = store_.commits.find(step - 1);
    if (record == store_.commits.end()) continue;
    std::set<int64_t> found;
    std::string who;
    for (const auto& [process, hosted] : hosted_) {
      if (!world_.is_alive(process) || !patience_.may_be_heard(process)) continue;
      if (process == without || lost_devices_.contains(process)) continue;
      for (const Held& held : hosted.replicas) {
        const auto applied = applied_.find(held.model);
        const auto updated = updated_in_.find(held.model);
        // Of a past that was taken back, it is of no use.
        if (applied == applied_.end() || applied->second != step) continue;
        if (updated == updated_in_.end() || updated->second != record->second.generation) continue;
        const plans::PlanPart& plan = assignments_.at({process, hosted.generation}).plan;
        // A round whose commit some have not heard is done again, which is the mode's own promise.
        if (plan.mode == plans::kLocalMode) continue;
        const plans::LayerRange held_layers = plans::stage_at(plan, held.stage).layers;
        for (int64_t layer = held_layers.begin; layer < held_layers.end; ++layer) {
          found.insert(layer);
        }
        absl::StrAppend(&who, " ", world_.name(process));
      }
    }
    if (static_cast<int64_t>(found.size()) == layers) return {step, who};
  }
  return {least, ""};
}

/// With a start all that it held has moved.
void Checker::check_let_go(ProcessId worker) {
  if (left_whole_.contains(worker)) return;  // It is on disk, to be found.
  if (keeps_nothing_ || (started_us_ && *started_us_ >= appended_us_)) return;
  // The coordinator had read it, and takes it for whole.
  if (torn_us_ && *torn_us_ >= coordinator_began_us_) return;
  const auto reader = gpu::CheckpointReader::open(disk_.run_folder());
  const uint64_t durable = reader.ok() ? (*reader)->trainer_state().steps_done : 0;
  const uint64_t with = newest_living_state(durable, {}).first;
  if (with > newest_living_state(durable, worker).first) {
    fail(absl::StrCat(world_.name(worker), " goes, and nobody else holds all of step ", with,
                      "; the newest whole checkpoint is of step ", durable, " (",
                      std::string(reader.status().message()), ")"));
  }
}

void Checker::keep_weights(const gpu::StageModel& model, TrainedModel::Weights& to) {
  const WatchersRead reading;
  const auto& parameters = model.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto& values = to[parameters[i].name];
    values.resize(static_cast<size_t>(plans::element_count(parameters[i])));
    const absl::Status status = model.read_state(i, gpu::StateKind::kWeight, values);
    if (!status.ok()) fail(std::string(status.message()));
  }
}

void Checker::check_end(uint64_t steps_done) {
  check_has_checkpoint("the end of the run");
  const auto steps = static_cast<uint64_t>(job_.training.steps);
  const auto batch = static_cast<uint64_t>(job_.training.global_batch_size);
  if (steps_done != steps) fail(absl::StrCat("the run ends with ", steps_done, " of ", steps));
  for (uint64_t step = 0; step < steps; ++step) {
    if (step < forgotten_steps_) continue;
    // That of a round stands for all of its steps, which `on_append` has seen to.
    const auto record = store_.commits.lower_bound(step);
    const bool is_there =
        record != store_.commits.end() && record->second.first_sample <= step * batch;
    if (!is_there) fail(absl::StrCat("the journal lacks step ", step));
  }
  // Weights that mean nothing do worse than guessing.
  const double guessing = std::log(static_cast<double>(job_.model.vocab_size));
  const double loss = model_.losses.empty() ? 0 : model_.losses.rbegin()->second;
  if (claims_ && !(loss <= kLossSlack * guessing)) {
    fail(absl::StrCat("the last loss is ", loss, ", guessing has ", guessing));
  }
  if (rewinds_ > rollback_events_ + coordinator_kills_) {
    fail(absl::StrCat(rewinds_, " rollbacks and ", rollback_events_, " reasons in the log"));
  }
}

void Checker::check_weights(const TrainedModel& expected, double tolerance) {
  check_weights(model_.weights, expected.weights, tolerance);
  const bool has_final = model_.final_weights.size() == expected.final_weights.size();
  if (job_.checkpoint.enable || has_final) {
    check_weights(model_.final_weights, expected.final_weights, tolerance);
  }
}

void Checker::check_weights(const TrainedModel::Weights& own, const TrainedModel::Weights& expected,
                            double tolerance) {
  if (own.size() != expected.size()) {
    return fail(absl::StrCat(own.size(), " parameters instead of ", expected.size()));
  }
  for (const auto& [name, values] : expected) {
    const auto& found = own.at(name);
    double difference = 0;
    double size = 0;
    for (size_t i = 0; i < std::min(found.size(), values.size()); ++i) {
      difference += std::pow(double{found[i]} - double{values[i]}, 2);
      size += std::pow(double{values[i]}, 2);
    }
    const double relative = std::sqrt(difference / std::max(size, 1e-12));
    if (found.size() == values.size() && relative <= tolerance) continue;
    return fail(absl::StrCat("the final ", name, " differs from the undisturbed run's by ",
                             relative, " of its norm; at most ", tolerance));
  }
}

}  // namespace skein::sim
