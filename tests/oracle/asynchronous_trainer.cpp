// Trains pipeline replicas with several claims in flight, stage by stage, in a random order of
// events that the product's own decisions allow, and says what happened in which order: what a
// reference must do again with numbers of its own. Prints one line for each event:
//   model CHANNELS HEADS VOCABULARY POSITIONS LAYERS STAGES PIPELINES MICROBATCHES CLIP_BY
//   tensor REPLICA NAME VALUES...                   before the first event, and after the last
//   tokens SAMPLE TOKENS...                         the last one is a target only
//   forward | backward REPLICA STEP MICROBATCH SAMPLE
//   update REPLICA RATE NORM                        of its own gradient, which is clipped to 1, or
//                                                   with CLIP_BY "share" to its share of that
//   give | take REPLICA GROUP nonblocking|global|weights MEMBER:WEIGHT...
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "actors/averaging/model_floats.hpp"
#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"
#include "plans/base/check.hpp"
#include "plans/base/rng.hpp"
#include "plans/job/learning_rate.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/schedule/continuous_1f1b.hpp"
#include "tests/plans/modes/pipeline_world.hpp"

namespace skein {
namespace {

constexpr int64_t kSeqLen = 6;
constexpr double kMaxNorm = 1;
constexpr double kRate = 0.02;  // Small: what rounds differently does not grow.

plans::JobSpec small_job(int64_t stages, int64_t pipelines, int64_t claims,
                         const std::string& policy, const std::string& clip_by) {
  plans::JobSpec job = plans::pipeline_job(stages, pipelines, policy);
  job.model.vocab_size = 11;
  job.model.positions = kSeqLen;
  job.model.heads = 2;
  job.model.channels = 12;
  job.model.init_std = 0.3;
  job.training.seq_len = kSeqLen;
  job.optimizer.name = "sgd";
  job.optimizer.momentum = 0.9;
  job.optimizer.weight_decay = 0;
  job.sync.claims_in_flight = claims;
  job.sync.clip_by = clip_by;
  return job;
}

void check(const absl::Status& status) { SKEIN_CHECK(status.ok()) << status; }

class Trainer {
 public:
  Trainer(const plans::JobSpec& job, uint64_t seed)
      : job_(job), seed_(seed), device_(gpu::make_host_device(1)) {
    const auto stages = static_cast<int32_t>(job.parallelism.pipeline_parallel_degree);
    const auto pipelines = static_cast<uint32_t>(job.parallelism.data_parallel_replicate_degree);
    layout_ = {pipelines, static_cast<uint32_t>(stages)};
    std::vector<plans::WorkerId> workers;
    for (uint32_t id = 1; id <= layout_.replica_count(); ++id) workers.push_back({id});
    const plans::Plan plan = plans::make_pipeline_plan(job, workers, 1).value();
    microbatches_ = static_cast<int32_t>(plan.microbatch_count);
    const plans::Continuous1F1B order{stages, microbatches_,
                                      static_cast<int32_t>(job.sync.claims_in_flight)};
    for (uint32_t id = 0; id < layout_.replica_count(); ++id) {
      const auto stage = static_cast<int32_t>(layout_.stage_of({id}));
      gpu::StageModelOptions options;
      options.model = job.model;
      options.layers = plan.stages[static_cast<size_t>(stage)].layers;
      options.optimizer = job.optimizer;
      options.rows = 1;
      options.seq_len = kSeqLen;
      options.stash_count = order.stash_peak(stage);
      options.old_versions = job.sync.claims_in_flight > 1 ? order.old_versions(stage) : 0;
      options.recompute = seed % 2 == 0;
      options.seed = 5;
      models_.push_back(gpu::StageModel::create(options, *device_).value());
      models_.back()->reset_loss();
      max_norms_.push_back(kMaxNorm * plans::clip_share(job, options.layers));
    }
    std::printf("model %ld %ld %ld %ld %ld %d %u %d %s\n", job.model.channels, job.model.heads,
                job.model.vocab_size, job.model.positions, job.model.layers, stages, pipelines,
                microbatches_, job.sync.clip_by.c_str());
  }

  void run() {
    print_tensors();
    plans::PipelineWorld::Options options;
    options.seed = seed_;
    options.round_steps = 6;
    options.rounds = 2;
    options.on_work = [this](uint32_t id, const plans::ProgramCommand& work, uint64_t first) {
      if (const auto* run = std::get_if<plans::RunAction>(&work)) act(id, *run, first);
      if (std::holds_alternative<plans::RunUpdate>(work)) update(id);
    };
    options.on_give = [this](uint32_t id, const plans::AverageWeights& group) { give(id, group); };
    options.on_take = [this](uint32_t id, const plans::AverageWeights& group) { take(id, group); };
    plans::PipelineWorld(job_, options).run();
    print_tensors();
  }

 private:
  using Floats = std::vector<float>;
  using Place =
      std::tuple<uint32_t, uint64_t, int32_t>;  // Pipeline, or replica; step; micro-batch.

  void print_tensors() const {
    for (uint32_t id = 0; id < models_.size(); ++id) {
      const auto& specs = models_[id]->parameters();
      for (size_t i = 0; i < specs.size(); ++i) {
        Floats values(static_cast<size_t>(plans::element_count(specs[i])));
        check(models_[id]->read_state(i, gpu::StateKind::kWeight, values));
        std::printf("tensor %u %s", id, specs[i].name.c_str());
        for (float each : values) std::printf(" %.9g", double{each});
        std::printf("\n");
      }
    }
  }

  /// T + 1 tokens.
  std::vector<int32_t> tokens_of(uint64_t sample) {
    plans::Rng rng(7, sample);
    std::vector<int32_t> tokens;
    for (int64_t t = 0; t <= kSeqLen; ++t) tokens.push_back(static_cast<int32_t>(rng.below(11)));
    if (std::exchange(is_printed_[sample], true)) return tokens;
    std::printf("tokens %lu", sample);
    for (int32_t each : tokens) std::printf(" %d", each);
    std::printf("\n");
    return tokens;
  }

  void on_device(std::function<absl::Status(gpu::Ops&)> work) {
    check(device_->run({gpu::WorkKind::kOther, std::move(work)}));
  }

  void act(uint32_t id, const plans::RunAction& run, uint64_t first) {
    gpu::StageModel& model = *models_[id];
    const uint64_t sample = first + static_cast<uint64_t>(run.action.microbatch);
    const std::vector<int32_t> tokens = tokens_of(sample);
    const bool is_forward = run.action.type == plans::ActionType::kForward;
    std::printf("%s %u %lu %d %lu\n", is_forward ? "forward" : "backward", id, run.step,
                run.action.microbatch, sample);
    const uint32_t stage = layout_.stage_of({id});
    const Place here{id, run.step, run.action.microbatch};
    const int32_t stash = run.stash();
    const auto elements = static_cast<size_t>(model.activation_elements());
    const double scale = 1.0 / static_cast<double>(microbatches_ * kSeqLen);
    if (is_forward) {
      if (run.begins_step) on_device([&](gpu::Ops& ops) { return model.start_step(ops, scale); });
      gpu::StageModel::Input input;
      const Floats activations = std::exchange(inputs_[here], {});
      if (model.has_embedding()) input.tokens = {tokens.data(), static_cast<size_t>(kSeqLen)};
      if (model.has_head()) input.targets = {&tokens[1], static_cast<size_t>(kSeqLen)};
      if (!model.has_embedding()) input.activations = activations;
      Floats output(model.has_head() ? 0 : elements);
      on_device([&](gpu::Ops& ops) { return model.forward(ops, stash, input, output); });
      if (model.has_head()) return;
      const auto next = layout_.replica(stage + 1, layout_.pipeline_of({id})).value;
      inputs_[{next, run.step, run.action.microbatch}] = std::move(output);
      return;
    }
    if (run.begins_step) on_device([&](gpu::Ops& ops) { return model.start_gradients(ops); });
    const Floats gradient = std::exchange(gradients_[here], {});
    Floats output(model.has_embedding() ? 0 : elements);
    on_device([&](gpu::Ops& ops) { return model.backward(ops, stash, gradient, output); });
    if (model.has_embedding()) return;
    const auto before = layout_.replica(stage - 1, layout_.pipeline_of({id})).value;
    gradients_[{before, run.step, run.action.microbatch}] = std::move(output);
  }

  void update(uint32_t id) {
    gpu::StageModel& model = *models_[id];
    double squared = 0;
    on_device([&](gpu::Ops& ops) { return model.gradient_norm_squared(ops, &squared); });
    const double norm = std::sqrt(squared);
    std::printf("update %u %.17g %.17g\n", id, kRate, norm);
    on_device([&](gpu::Ops& ops) {
      return model.update(ops, {kRate, plans::clip_factor(norm, max_norms_[id]), 0});
    });
    if (addends_[id].empty()) return;
    check(actors::add_weights(model, std::exchange(addends_[id], {})));
  }

  static bool is_nonblocking(uint32_t id, const plans::AverageWeights& group) {
    for (const plans::GroupMember& each : group.members) {
      if (each.replica.value == id) return each.is_nonblocking;
    }
    return false;
  }
  static actors::ModelFloats which(const plans::AverageWeights& group) {
    return group.is_global ? actors::ModelFloats::kWithMoments : actors::ModelFloats::kWeights;
  }

  static void print(const char* what, uint32_t id, const plans::AverageWeights& group) {
    std::printf("%s %u %lu %s", what, id, group.number,
                is_nonblocking(id, group) ? "nonblocking"
                : group.is_global         ? "global"
                                          : "weights");
    for (const plans::GroupMember& each : group.members) {
      std::printf(" %u:%.17g", each.replica.value, each.weight);
    }
    std::printf("\n");
  }

  void give(uint32_t id, const plans::AverageWeights& group) {
    print("give", id, group);
    Floats& given = given_[group.number][id];
    check(actors::read_floats(*models_[id], which(group), given));
    const Floats& addend = addends_[id];
    for (size_t i = 0; i < addend.size(); ++i) given[i] += addend[i];
    if (!is_nonblocking(id, group)) addends_[id].clear();  // The result has it.
  }

  void take(uint32_t id, const plans::AverageWeights& group) {
    print("take", id, group);
    std::map<uint32_t, Floats>& given = given_.at(group.number);
    Floats sum(given.at(id).size());
    for (const plans::GroupMember& each : group.members) {
      const Floats& values = given.at(each.replica.value);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<float>(each.weight) * values[i];
    }
    if (!is_nonblocking(id, group))
      return check(actors::write_floats(*models_[id], which(group), sum));
    const Floats& own = given.at(id);
    Floats& addend = addends_[id];
    addend.resize(sum.size());
    for (size_t i = 0; i < sum.size(); ++i) addend[i] += sum[i] - own[i];
  }

  const plans::JobSpec job_;
  const uint64_t seed_;
  std::unique_ptr<gpu::Device> device_;
  plans::PipelineLayout layout_;
  int32_t microbatches_ = 1;
  std::vector<std::unique_ptr<gpu::StageModel>> models_;  // By replica.
  std::vector<double> max_norms_;                         // By replica.
  std::map<Place, Floats> inputs_, gradients_;
  std::map<uint32_t, Floats> addends_;
  std::map<uint64_t, std::map<uint32_t, Floats>> given_;  // By group and replica.
  std::map<uint64_t, bool> is_printed_;
};

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int64_t numbers[4] = {};
  bool fits = argc == 7;
  for (int i = 0; i < 4; ++i) fits = fits && absl::SimpleAtoi(argv[i + 1], &numbers[i]);
  if (!fits) {
    std::cerr << "usage: asynchronous_trainer STAGES PIPELINES CLAIMS SEED POLICY CLIP_BY\n";
    return 2;
  }
  const auto [stages, pipelines, claims, seed] = numbers;
  const skein::plans::JobSpec job = skein::small_job(stages, pipelines, claims, argv[5], argv[6]);
  skein::Trainer(job, static_cast<uint64_t>(seed)).run();
  return testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}
