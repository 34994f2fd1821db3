#include "plans/tokens/token_simulation.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

absl::Status check(const TokenPlan& plan, const TokenSimulationOptions& options) {
  int64_t layer = 0;
  for (const LayerRange& range : plan.sub_models) {
    if (range.begin != layer || range.end <= range.begin) {
      return absl::InvalidArgumentError(
          absl::StrCat("a sub-model begins with layer ", range.begin, " instead of ", layer));
    }
    layer = range.end;
  }
  if (layer != static_cast<int64_t>(options.profile.layers.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("sub-models have ", layer, " layers of ", options.profile.layers.size()));
  }
  const size_t levels = plan.sub_models.size();
  if (plan.shape.levels() != levels || plan.level_workers.size() != levels) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens and workers are given for ", plan.shape.levels(), " and ",
                     plan.level_workers.size(), " levels of ", levels));
  }
  if (plan.shape.samples == 0) return absl::InvalidArgumentError("a step has no samples");
  uint64_t before = 1;
  for (const uint64_t each : plan.shape.samples_of_token) {
    if (each == 0 || each % before != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokens of ", each, " samples are not made of whole ones of ", before));
    }
    before = each;
  }
  for (const std::vector<WorkerId>& workers : plan.level_workers) {
    const bool fits =
        !workers.empty() && workers.front().value > 0 &&
        workers.back().value <= options.speeds.size() &&
        std::adjacent_find(workers.begin(), workers.end(), std::greater_equal()) == workers.end();
    if (!fits) {
      return absl::InvalidArgumentError(
          "a level has workers that do not exist, one of them twice, or none");
    }
  }
  if (plan.level_workers.front().size() != options.speeds.size()) {
    return absl::InvalidArgumentError("somebody may not train the first level");
  }
  return absl::OkStatus();
}

class TokenRun {
 public:
  TokenRun(const TokenPlan& plan, const TokenSimulationOptions& options)
      : plan_(plan),
        options_(options),
        workers_(options.speeds.size(), first_use(options)),
        buckets_(plan.shape, plan.level_workers, first_shares(options)) {
    result_.busy_us.resize(workers_.size());
  }

  TokenSimulation run() {
    for (step_ = 0; step_ < options_.steps; ++step_) {
      const double begin_us = now_us_;
      begin_step();
      while (synced_ < options_.profile.layers.size()) {
        SKEIN_CHECK(!events_.empty()) << "step " << step_ << " stands still";
        const auto next = events_.begin();
        now_us_ = std::max(now_us_, next->first);
        const std::function<void()> what = std::move(next->second);
        events_.erase(next);
        what();
      }
      result_.step_us.push_back(now_us_ - begin_us);
    }
    return std::move(result_);
  }

 private:
  /// What each comes to in the first step, of which the training mode knows nothing yet.
  static std::vector<double> first_shares(const TokenSimulationOptions& options) {
    return options.follows_training_mode ? std::vector<double>(options.speeds.size(), 1.0)
                                         : options.speeds;
  }

  struct Worker {
    double awake_us = 0;  // It sleeps until then.
    bool is_busy = false;
    bool waits = false;             // There is no token for it.
    uint32_t claims = 0;            // Asked for, or claimed and not computed.
    uint32_t newest_level = 0;      // Where it claimed last.
    TokenUse use;                   // What it has had in this step.
    std::deque<TokenId> forwards;   // Their inputs are here.
    std::deque<TokenId> backwards;  // Their gradients are.
    double send_free_us = 0, receive_free_us = 0;
  };

  static Worker first_use(const TokenSimulationOptions& options) {
    Worker worker;
    worker.use.ahead = options.claims_ahead;
    return worker;
  }

  Worker& at(WorkerId id) { return workers_[id.value - 1]; }
  void after(double at_us, std::function<void()> what) { events_.emplace(at_us, std::move(what)); }

  void begin_step() {
    events_.clear();  // Wishes of those who were still asleep.
    if (pool_ && options_.follows_training_mode)
      buckets_ = {plan_.shape, plan_.level_workers, came_to()};
    pool_.emplace(plan_.shape);
    missing_.clear();
    tokens_done_.clear();
    synced_ = 0;
    const auto count = static_cast<int32_t>(workers_.size());
    for (int32_t device = 0; device < count; ++device) {
      Worker& own = workers_[static_cast<size_t>(device)];
      Worker next = first_use(options_);
      if (options_.follows_training_mode) {
        next.use.ahead = ahead_in_next_step(own.use, options_.claims_ahead);
      }
      next.awake_us = own.awake_us;
      next.send_free_us = own.send_free_us;
      next.receive_free_us = own.receive_free_us;
      own = std::move(next);
      const WorkPiece nothing{device, static_cast<int32_t>(step_), 0, 0};
      const double start_us = std::max(now_us_, own.awake_us);
      own.awake_us = end_of_work(options_.scenario, nothing, count, start_us);
      const WorkerId id{static_cast<uint32_t>(device) + 1};
      after(own.awake_us, [this, id] { ask(id); });
    }
  }

  /// In the step before.
  std::vector<double> came_to() const {
    std::vector<double> samples;
    for (WorkerId id : plan_.level_workers.front()) {
      samples.push_back(static_cast<double>(std::max<uint64_t>(1, pool_->samples_done(0, id))));
    }
    return samples;
  }

  void ask(WorkerId id) {
    Worker& own = at(id);
    while (own.claims < own.use.ahead && !own.waits) {
      ++own.claims;
      own.waits = true;
      grant_later(id);
    }
  }

  /// With this wish it has nothing in hand; in the training mode that is so when the backward is
  /// done, too.
  bool may_help(const Worker& own) const {
    const bool has_backward = own.is_busy || !own.backwards.empty();
    return own.claims == 1 && !(options_.follows_training_mode && has_backward);
  }

  /// At the server.
  void grant(WorkerId id) {
    Worker& own = at(id);
    if (!own.waits) return;
    const auto token = choose_token(*pool_, plan_.policy, buckets_, {id, may_help(own)});
    if (!token) {  // Asked again for it when something is ready.
      if (may_help(own)) note_kept(id);
      return;
    }
    own.waits = false;
    ++own.use.granted;
    own.newest_level = token->level;
    pool_->claim(*token, id);
    after(now_us_ + options_.request_us / 2, [this, id, token = *token] { on_grant(id, token); });
  }

  /// The worker has nothing and gets nothing.
  void note_kept(WorkerId idle) {
    for (Worker& other : workers_) {
      const bool holds_for_later = other.claims - (other.waits ? 1 : 0) > 1;
      if (holds_for_later && buckets_.may_train(other.newest_level, idle)) {
        other.use.kept_from_others = true;
      }
    }
  }

  void on_grant(WorkerId id, TokenId token) {
    ask(id);
    size_t missing = 0;
    for (TokenId input : pool_->inputs_of(token)) {
      const WorkerId holder = *pool_->at(input).holder;
      if (holder == id) continue;
      ++missing;
      send(holder, id, output_bytes(input), [this, id, token] {
        if (--missing_[token] == 0) on_inputs(id, token);
      });
    }
    missing_[token] = missing;
    if (missing == 0) on_inputs(id, token);
  }

  void on_inputs(WorkerId id, TokenId token) {
    at(id).forwards.push_back(token);
    compute(id);
  }

  double output_bytes(TokenId id) const {
    const int64_t last = plan_.sub_models[id.level].end - 1;
    const int64_t row_bytes = cut_row_bytes(options_.profile, last + 1);
    return static_cast<double>(row_bytes) * static_cast<double>(pool_->samples_of(id).count);
  }

  void send(WorkerId from, WorkerId to, double bytes, std::function<void()> done) {
    double& out_us = at(from).send_free_us;
    double& in_us = at(to).receive_free_us;
    const double begin_us = std::max({now_us_, out_us, in_us});
    out_us = in_us = begin_us + bytes / options_.bytes_per_second * kMicrosecondsPerSecond;
    result_.moved_bytes += bytes;
    after(out_us + options_.latency_us, std::move(done));
  }

  double backward_us(const LayerTimes& times) const {
    return times.backward_us() + (options_.recompute ? times.forward_us : 0);
  }

  void compute(WorkerId id) {
    Worker& own = at(id);
    if (own.is_busy) return;
    const bool is_backward = !own.backwards.empty();
    std::deque<TokenId>& pieces = is_backward ? own.backwards : own.forwards;
    if (pieces.empty()) return;
    const auto first =
        is_backward ? std::max_element(pieces.begin(), pieces.end()) : pieces.begin();
    const TokenId token = *first;
    pieces.erase(first);
    own.is_busy = true;
    const auto rows = static_cast<int64_t>(pool_->samples_of(token).count);
    const LayerTimes times = range_times(options_.profile, plan_.sub_models[token.level], rows);
    const double work_us =
        (is_backward ? backward_us(times) : times.forward_us) / options_.speeds[id.value - 1];
    // It slept, if it had to, before it asked for a token.
    const WorkPiece piece{static_cast<int32_t>(id.value) - 1, static_cast<int32_t>(step_), 1,
                          work_us};
    const double end_us =
        end_of_work(options_.scenario, piece, static_cast<int32_t>(workers_.size()), now_us_);
    result_.busy_us[id.value - 1] += end_us - now_us_;
    if (is_backward) note_layers(token, rows, now_us_, end_us);
    after(end_us, [this, id, token, is_backward] {
      at(id).is_busy = false;
      if (is_backward) {
        on_backward(id, token);
        if (is_claimed_until_done(token)) --at(id).claims;
        if (options_.follows_training_mode && at(id).waits) grant_later(id);  // It may help now.
        if (is_claimed_until_done(token)) ask(id);
      } else {
        on_forward(id, token);
      }
      compute(id);
    });
  }

  /// The training mode hears of a token of the deepest level when its backward has ended.
  bool is_claimed_until_done(TokenId token) const {
    return options_.follows_training_mode && !pool_->consumer_of(token);
  }

  void on_forward(WorkerId id, TokenId token) {
    if (!is_claimed_until_done(token)) --at(id).claims;
    const auto ready = pool_->on_output(id, token);
    SKEIN_CHECK(ready.is_accepted()) << token.level << "." << token.index;
    if (!pool_->consumer_of(token)) at(id).backwards.push_back(token);  // The loss is there.
    if (at(id).waits) grant_later(id);                                  // It may help now.
    ask(id);
    if (!ready.decisions().empty()) wake();
  }

  /// Something is ready: whoever waits for a token asks once more.
  void wake() {
    for (uint32_t w = 1; w <= workers_.size(); ++w) {
      if (at({w}).waits) grant_later({w});
    }
  }
  void grant_later(WorkerId id) {
    after(now_us_ + options_.request_us / 2, [this, id] { grant(id); });
  }

  void on_backward(WorkerId id, TokenId token) {
    const auto due = pool_->on_done(id, token);
    SKEIN_CHECK(due.is_accepted()) << token.level << "." << token.index;
    for (TokenId input : due.decisions()) {
      const WorkerId holder = *pool_->at(input).holder;
      const auto arrive = [this, holder, input] {
        at(holder).backwards.push_back(input);
        compute(holder);
      };
      if (holder == id) {
        arrive();
      } else {
        send(id, holder, output_bytes(input), arrive);
      }
    }
  }

  /// The backward of a token comes to its layers one after the other, the last one first.
  void note_layers(TokenId token, int64_t rows, double begin_us, double end_us) {
    const LayerRange& layers = plan_.sub_models[token.level];
    if (options_.follows_training_mode) {
      after(end_us, [this, token, layers] {
        if (++tokens_done_[layers.begin] == plan_.shape.count(token.level)) {
          reduce(token.level, layers);
        }
      });
      return;
    }
    const double all_us = backward_us(range_times(options_.profile, layers, rows));
    double done_us = 0;
    for (int64_t layer = layers.end - 1; layer >= layers.begin; --layer) {
      done_us += backward_us(layer_times(options_.profile, layer, rows));
      const double part = all_us > 0 ? done_us / all_us : 1;
      after(begin_us + part * (end_us - begin_us), [this, token, layer] {
        if (++tokens_done_[layer] == plan_.shape.count(token.level)) {
          reduce(token.level, {layer, layer + 1});
        }
      });
    }
  }

  /// In a ring of all who may train the level.
  void reduce(uint32_t level, const LayerRange& layers) {
    const std::vector<WorkerId>& members = plan_.level_workers[level];
    double begin_us = now_us_;
    for (WorkerId id : members) {
      begin_us = std::max({begin_us, at(id).send_free_us, at(id).receive_free_us});
      if (options_.follows_training_mode) begin_us = std::max(begin_us, at(id).awake_us);
    }
    const auto count = static_cast<double>(members.size());
    int64_t own_bytes = parameter_bytes(options_.profile, layers);
    // The other use of a tied embedding is added up with the first level's.
    if (level > 0 && layers.end == static_cast<int64_t>(options_.profile.layers.size())) {
      own_bytes -= options_.profile.tied_bytes;
    }
    const double bytes =
        2 * (count - 1) / count * options_.profile.gradient_factor * static_cast<double>(own_bytes);
    double end_us = begin_us;
    if (bytes > 0) {
      end_us += bytes / options_.bytes_per_second * kMicrosecondsPerSecond +
                2 * (count - 1) * options_.latency_us;
      for (WorkerId id : members) at(id).send_free_us = at(id).receive_free_us = end_us;
      result_.reduced_bytes += bytes;
    }
    after(end_us, [this, layers] { synced_ += static_cast<size_t>(layers.end - layers.begin); });
  }

  const TokenPlan& plan_;
  const TokenSimulationOptions& options_;
  std::vector<Worker> workers_;
  TokenBuckets buckets_;
  std::optional<TokenPool> pool_;
  std::map<TokenId, size_t> missing_;  // Inputs that travel, of claimed tokens.
  std::multimap<double, std::function<void()>> events_;
  double now_us_ = 0;
  uint32_t step_ = 0;
  /// By layer: whose gradients of it are there. Counted for the first one of a sub-model where all
  /// of its layers are reduced at once.
  std::map<int64_t, uint32_t> tokens_done_;
  size_t synced_ = 0;  // Layers that are reduced.
  TokenSimulation result_;
};

}  // namespace

double TokenSimulation::mean_step_us() const {
  return std::accumulate(step_us.begin(), step_us.end(), 0.0) / static_cast<double>(step_us.size());
}

int64_t simulation_work(const TokenShape& shape, const TokenSimulationOptions& options) {
  int64_t tokens = 0;
  for (uint32_t level = 0; level < shape.levels(); ++level) tokens += shape.count(level);
  const auto workers = static_cast<int64_t>(options.speeds.size());
  return int64_t{options.steps} * tokens * (tokens + workers);
}

absl::StatusOr<TokenSimulation> simulate_tokens(const TokenPlan& plan,
                                                const TokenSimulationOptions& options) {
  SKEIN_RETURN_IF_ERROR(check(plan, options));
  return TokenRun(plan, options).run();
}

}  // namespace skein::plans
