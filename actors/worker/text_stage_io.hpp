#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "absl/status/status.h"
#include "gpu/checkpoint/model_source.hpp"
#include "gpu/device.hpp"
#include "gpu/model/decoder.hpp"
#include "net/codec/envelope.hpp"
#include "net/data/data_plane.hpp"
#include "plans/text/text_messages.hpp"

namespace skein::actors {

/// What room a device has for layers of a model.
struct TextMeasurement {
  plans::TextRequest request;
  plans::ModelSpec model;  // As the job says.
  std::shared_ptr<gpu::Device> device;
};
/// Layers to compute with, of the model that was measured.
struct TextAssignment {
  plans::TextLayers order;
  plans::WorkerId self;
  std::string coordinator_address;  // Where the coordinator takes tensors.
  std::shared_ptr<net::DataPlane> plane;
};
/// Activations of one position have arrived.
struct TextRow {
  net::TensorKey key;
  net::TensorHandle row;
};
/// What the coordinator is to hear, or why this worker cannot go on.
struct TextAnswer {
  absl::Status status;
  std::optional<net::ControlBody> body;  // If that is ok.
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::TextMeasurement)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::TextAssignment)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::TextRow)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::TextAnswer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::plans::TextStep)

namespace skein::actors {

using TextListener = caf::typed_actor<caf::reacts_to<TextAnswer>>;

/// Some layers of a model that draws text, on a worker's device. Reads weights and waits for the
/// device: spawn it detached.
///   in   TextMeasurement   from the Worker
///   in   TextAssignment    from the Worker: loads the layers; a repeat is dropped
///   in   TextStep          from the Worker; an older one, or a repeat, is dropped
///   in   TextRow           from the data plane: what the layers before have made; may come before
///                          the step that it is for
///   out  TextAnswer        to the listener, with TextRoom or TextReady, or when it has failed
using TextStageIo =
    caf::typed_actor<caf::reacts_to<TextMeasurement, TextListener>, caf::reacts_to<TextAssignment>,
                     caf::reacts_to<plans::TextStep>, caf::reacts_to<TextRow>>;

struct TextStageIoState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "text-stage-io";

  TextStageIo::stateful_pointer<TextStageIoState> self = nullptr;
  TextListener listener;
  TextMeasurement measured;
  std::optional<gpu::ModelSource> source;  // The model that was measured.
  TextAssignment assignment;
  std::unique_ptr<gpu::Decoder> decoder;  // With the assignment.
  uint64_t last_step = 0;
  plans::TextStep step;            // The newest one, number `last_step`.
  std::vector<float> activations;  // [count, C] of that step; empty for the first layer.
  int64_t rows_missing = 0;        // Still to come of these; 0: the step has been made.
  std::map<std::pair<uint64_t, uint32_t>, net::TensorHandle> early;  // By step and position.

  void measure(const TextMeasurement& measurement);
  void assign(const TextAssignment& order);
  void on_step(const plans::TextStep& order);
  void on_row(const TextRow& arrived);

 private:
  absl::StatusOr<plans::TextRoom> room() const;
  absl::Status load();
  bool takes_tokens() const { return assignment.order.layers.begin == 0; }
  void open_stream();
  void take(uint32_t position, const net::TensorHandle& row);
  absl::Status extend();
  void send_on(std::shared_ptr<const std::vector<float>> output);
  void answer(absl::StatusOr<net::ControlBody> body);
};

TextStageIo::behavior_type text_stage_io(TextStageIo::stateful_pointer<TextStageIoState> self);

}  // namespace skein::actors
