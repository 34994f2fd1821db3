#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/messages.hpp"
#include "actors/replica/device_operations.hpp"
#include "actors/replica/stage_replica.hpp"
#include "gpu/device_pool.hpp"
#include "net/data/tensor_inbox.hpp"
#include "plans/collectives/communication_order.hpp"
#include "plans/plan/plan_part.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::actors {

/// What the replicas here send to and receive from neighbouring stages without the hosts: rows in
/// the device's memory, over links between two devices. Owned by one actor; touched only from its
/// handlers.
class LinkTransfers {
 public:
  struct Options {
    plans::PlanPart plan;
    int64_t row_numbers = 0;                                     // T * C
    std::set<int32_t> linked;                                    // Stages in front of a link.
    std::map<int32_t, std::shared_ptr<gpu::DevicePool>> memory;  // By the same stages.
    /// Asks the StageLinkIo of the link behind stage `front`; `on_end` follows.
    std::function<void(int32_t front, const TransferRequest&)> transfer;
    std::function<void(const absl::Status&)> fail;  // Runs out of memory.
    std::function<uint64_t()> now_us;
  };
  LinkTransfers(Options options, const StageReplicas& replicas, DeviceOperations& operations);

  /// A stage's tensors of this kind leave over a link.
  bool carries(int32_t from_stage, net::schema::TensorKind kind) const;
  /// The type of the numbers in these tensors: float32 if they do not.
  gpu::NumberType type_of(int32_t from_stage, net::schema::TensorKind kind) const;
  /// Memory for an action's output that `pass_on` will send.
  absl::StatusOr<net::TensorHandle> make_output(const StageReplica& from, const plans::Action& by);

  /// A step's transfers will come.
  void expect(uint64_t step);
  /// There is memory for whatever comes in a step: to wait for some would be to wait for a later
  /// operation. Everything else of the step is expected by then.
  void await_inputs(uint64_t step);
  /// An action has ended: its output, if it has one that goes over a link, is there.
  void pass_on(const plans::RunAction& run);
  /// The turn of a transfer has come. False: the operation is not a transfer.
  bool begin(const plans::CollectiveKey& key);

  /// Rows that the device sends to another, or receives, in a step.
  struct Transfer {
    plans::TransferId id;
    int32_t front = 0;  // The link's stage in front.
    int32_t stage = 0;  // Ours.
    bool is_sent = false;
    net::TensorKey key;  // Names the tensor for its receiver.
    plans::WorkerId peer;
    int64_t number_begin = 0;  // Where the rows are in the tensor here.
    int64_t number_count = 0;
    net::TensorHandle tensor;  // On the device. Null: it is not there yet.
    uint64_t start_us = 0;
  };
  struct Ended {
    Transfer transfer;
    net::TensorHandle input;  // The whole tensor, if this was its last part; else null.
  };
  /// A transfer has ended, well or not: the device has nothing of it any more. False: it does not
  /// run here.
  bool on_end(const plans::CollectiveKey& key) { return running_.erase(key) > 0; }
  /// It has ended well; the next operation begins.
  Ended finish(const plans::CollectiveKey& key);

  bool is_idle() const { return running_.empty(); }
  /// Lets go of the device's memory.
  void clear();

 private:
  /// An input that comes in parts.
  struct Arriving {
    net::TensorHandle tensor;
    int64_t numbers_left = 0;
  };

  void expect(const StageReplica& replica, uint64_t step);
  void expect(const StageReplica& replica, int32_t front, net::schema::TensorKind kind,
              const plans::TransferId& id, const plans::Route& route, uint64_t step);
  static plans::InputKey input_key(const Transfer& transfer);

  Options options_;
  const StageReplicas& replicas_;
  DeviceOperations& operations_;
  std::map<plans::CollectiveKey, Transfer> transfers_;  // That have not ended.
  std::map<std::tuple<int32_t, plans::ActionType, int32_t>, net::TensorHandle>
      outputs_;  // To come.
  std::map<plans::InputKey, Arriving> arriving_;
  std::set<plans::CollectiveKey> running_;  // That a link works on; of `transfers_`.
};

}  // namespace skein::actors
