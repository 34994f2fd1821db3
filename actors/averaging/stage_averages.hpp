#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/averaging/weight_chunks.hpp"
#include "actors/averaging/weight_exchange.hpp"
#include "actors/averaging/weight_server.hpp"
#include "actors/fail_point.hpp"
#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"
#include "net/codec/local_updates.hpp"
#include "plans/base/outcome.hpp"
#include "plans/sync/group_scheduler.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::actors {

/// One replica's part in the groups that average weights: what it contributes, what it takes over,
/// and its share of the stage's parameter server. The program says when a group begins that it
/// waits for; those that it does not wait for begin at once. Owned by one actor; touched only from
/// its handlers.
///
/// A group goes from copying the contribution (on the device, so behind the update), through the
/// exchange, to writing the result (on the device), and is over; a non-blocking member writes
/// nothing: the difference is added by its next update.
class StageAverages {
 public:
  /// Work of the device that `on_work` follows, in order.
  enum class Work : uint64_t { kCopy, kWrite, kFirstCopy };
  static constexpr uint64_t kWorks = 3;

  struct Ended {
    int32_t stage = 0;
    uint64_t number = 0;
    bool ok = false;                   // False: it was aborted.
    bool is_nonblocking = false;       // The program does not wait for it.
    std::optional<uint64_t> start_us;  // When the copy was ordered; none: it never was.
  };
  /// The other end of the pipeline replica, if it uses the same embedding: at the end of a round
  /// the last stage takes the weights and moments that the first one has.
  struct TiedEnd {
    bool is_first = false;  // We are the first stage.
    plans::ReplicaId other;
    std::string address;  // Its data plane; empty: it is on this worker.
    size_t floats = 0;    // The embedding: the first of our weights, or the last.
  };
  struct Options {
    int32_t stage = 0;
    std::shared_ptr<gpu::StageModel> model;
    WeightStreams streams;                         // This replica's own.
    std::vector<plans::ReplicaId> stage_replicas;  // All of the stage.
    bool has_server = false;
    bool averages_moments = false;
    /// At the end of a round the weights that it began with go by Adasum of what each replica has
    /// added to them since, parameter by parameter (Maleki et al., MLSys'21, section 4.2: of the
    /// optimizer's effect, not of gradients); else all average theirs. Moments are averaged.
    bool reduces_by_adasum = false;
    std::optional<TiedEnd> tied;
    FailPointHandle fail_point;
    std::function<void(Work, gpu::Work)> submit;
    std::function<void(const Ended&)> on_ended;
    std::function<uint64_t()> now_us;
  };
  /// Opens the streams.
  explicit StageAverages(Options options);

  /// What the program is to be told of a group: none, as the replica is a shard only or does not
  /// wait for it. A repeat and a group that cannot be are dropped.
  plans::Outcome<std::optional<plans::AverageOrder>> on_order(net::Average order);
  /// The program does not take the group that it was just told of.
  void withdraw(uint64_t number) { offered_.erase(number); }
  /// The program begins a group that was offered to it.
  void begin(uint64_t number);
  /// The group lacks a member.
  void abort(uint64_t number);
  /// A round begins: its first weights, which all replicas have, are the server's, and what the
  /// others are compared with at its end.
  void begin_round();
  /// Work that was submitted has ended.
  void on_work(Work work);
  void on_chunk(const net::TensorKey& key, const net::TensorHandle& chunk);

  /// What averages add to the weights behind the next update; null: nothing. It is then no more.
  std::shared_ptr<const std::vector<float>> take_addend() {
    return std::exchange(addend_, nullptr);
  }
  uint64_t staleness() const { return staleness_; }
  void check_invariants() const;

 private:
  using Floats = std::shared_ptr<std::vector<float>>;
  enum class Progress { kOffered, kCopying, kExchanging, kAwaitingTied, kWriting };
  struct Group {
    net::Average order;
    Progress progress = Progress::kOffered;
    uint64_t start_us = 0;
    Floats contribution;                               // From kCopying on.
    std::shared_ptr<const std::vector<float>> addend;  // That the contribution contains.
    std::vector<float> result;                         // kAwaitingTied: all but the embedding's.
    bool is_delta = false;  // What is exchanged is the difference to the round's first weights.
  };

  bool can_be(const net::Average& order) const;
  void copy();
  void on_first_copied();
  void on_copied();
  void on_exchanged(std::vector<float> values);
  void write(std::vector<float> values);
  void send_tied(const std::vector<float>& values);
  void on_tied(const net::TensorKey& key, const net::TensorHandle& state);
  void try_write_tied();
  /// The server's weights, if they are all there.
  void on_pulled(std::optional<WeightServer::Done> done);
  void end(bool ok);

  const Options options_;
  std::unique_ptr<WeightExchange> exchange_;
  std::unique_ptr<WeightServer> server_;  // Null: the stage has none.
  Floats first_;  // The round's first weights, once they are read; null: nobody needs them.
  Floats taken_;  // What was taken from the server last.
  std::map<uint64_t, net::Average> offered_;  // By number: those that the program has not begun.
  std::set<uint64_t> aborted_;                // Some of them, by number.
  std::optional<Group> running_;              // One at a time; never an offered one.
  int void_copies_ = 0;                       // Under way, for groups that were aborted; >= 0.
  uint64_t newest_ = 0;                       // Group that it was told of.
  uint64_t staleness_ = 0;                    // As its last group had it.
  /// What groups that the replica did not wait for add to its weights; null: nothing.
  std::shared_ptr<const std::vector<float>> addend_;
  /// What came last from the other end: after how many steps of the job, and the state.
  std::optional<std::pair<uint64_t, net::TensorHandle>> tied_state_;
};

}  // namespace skein::actors
