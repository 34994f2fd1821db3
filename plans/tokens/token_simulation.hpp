#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/profile/profile.hpp"
#include "plans/simulator/slowdown.hpp"
#include "plans/tokens/token_order.hpp"
#include "plans/tokens/token_pool.hpp"

namespace skein::plans {

/// What is trained by tokens, and by whom.
struct TokenPlan {
  std::vector<LayerRange> sub_models;  // [levels], one behind the other, all layers of the model.
  TokenShape shape;
  LevelWorkers level_workers;  // Ids are positions among the workers, from 1.
  TokenPolicy policy;
};

struct TokenSimulationOptions {
  Profile profile;
  std::vector<double> speeds;  // [workers], > 0.
  /// Each worker has a network card of its own, which sends one thing at a time, and receives one.
  double bytes_per_second = 0;
  double latency_us = 0;  // Each transfer has it.
  double request_us = 0;  // From a worker's wish for a token to its grant.
  /// Tokens that a worker has claimed and not computed: with two, the inputs of one travel while
  /// the device has the other.
  uint32_t claims_ahead = 2;
  bool recompute = false;  // A backward computes the forward again.
  /// Who sleeps in a step does so before it asks for its first token, as in Fela's experiments
  /// (from memory); others are not kept from ending the step without it, unless
  /// `follows_training_mode`.
  Scenario scenario;
  /// As the training mode does it: who sleeps has its part in the sum of gradients, if only zeros,
  /// and adds it when it is awake; buckets are as large as what each came to in the step before,
  /// and who kept tokens from others in it claims fewer ahead (`ahead_in_next_step`); nobody helps
  /// others before its own last backward is done; and a sub-model's layers are reduced in one ring
  /// when its last backward has ended, not each while that goes on.
  bool follows_training_mode = false;
  uint32_t steps = 10;
};

struct TokenSimulation {
  std::vector<double> step_us;  // [steps]
  std::vector<double> busy_us;  // [workers], over all steps.
  double moved_bytes = 0;       // Outputs and gradients between workers, over all steps.
  double reduced_bytes = 0;     // What each member of a reduction sends, over all steps.
  double mean_step_us() const;
};

/// What simulating steps of such tokens costs, in no unit: for n tokens and w workers n (n + w) a
/// step.
int64_t simulation_work(const TokenShape& shape, const TokenSimulationOptions& options);

/// Steps of a job that is trained by tokens. A layer's gradients are reduced in a ring of all who
/// may train its level, as soon as the backward of every token has come through it, one layer after
/// the other; the next step begins when all are. A backward that is due goes before a forward, the
/// deepest first. There is no update.
/// InvalidArgument   if the sub-models are not all layers, or the shape or workers do not fit them.
/// Cost              about `simulation_work`.
absl::StatusOr<TokenSimulation> simulate_tokens(const TokenPlan& plan,
                                                const TokenSimulationOptions& options);

}  // namespace skein::plans
