#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "net/data/data_plane.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::actors {

/// Who hears that layers cannot be sent.
using LayersListener = caf::typed_actor<caf::reacts_to<LayersUnreadable>>;

/// Sends layers of a checkpoint to workers that do not see it; blocks on files: spawn it detached.
/// To each worker one layer is under way, so that no more than these are in memory.
///   in   LayersRequest   a worker's layers
///   in   LayerLeft       from itself: the data plane holds a layer no longer, the next one is read
///   in   EndTransfers    the plan is over: nothing more is sent
///   out  LayersUnreadable   to the listener, at most once per request, which then ends
using LayerSourceIo = caf::typed_actor<caf::reacts_to<LayersRequest, LayersListener>,
                                       caf::reacts_to<plans::EndTransfers>>;
using LayerSourceIoItself = LayerSourceIo::extend<caf::reacts_to<LayerLeft>>;

struct LayerSourceIoConfig {
  plans::JobSpec job;
  std::shared_ptr<net::DataPlane> plane;
};

struct LayerSourceIoState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "layer-source-io";

  struct Serving {
    LayersRequest request;
    LayersListener listener;
    std::shared_ptr<const gpu::CheckpointReader> reader;
    std::deque<int64_t> layers;  // Still to be sent.
  };

  LayerSourceIoItself::stateful_pointer<LayerSourceIoState> self = nullptr;
  LayerSourceIoConfig config;
  std::map<plans::WorkerId, Serving> servings;

  void serve(const LayersRequest& request, const LayersListener& listener);
  void send_next(plans::WorkerId worker, uint64_t generation);
  absl::Status send_layer(const Serving& serving, int64_t layer);
  void give_up(plans::WorkerId worker, const absl::Status& why);
};

LayerSourceIoItself::behavior_type layer_source_io(
    LayerSourceIoItself::stateful_pointer<LayerSourceIoState> self, LayerSourceIoConfig config);

}  // namespace skein::actors
