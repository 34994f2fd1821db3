#include "actors/worker/text_stage_io.hpp"

#include <algorithm>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/end_process.hpp"
#include "gpu/host/machine_memory.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

/// Positions whose activations may wait here for their step; more wait in their socket.
constexpr uint32_t kRowsMax = 256;
constexpr auto kKind = net::schema::TensorKind::ACTIVATION;

}  // namespace

TextStageIo::behavior_type text_stage_io(TextStageIo::stateful_pointer<TextStageIoState> self) {
  end_process_on_failure(*self);
  self->state.self = self;
  return {
      [self](const TextMeasurement& measurement, const TextListener& listener) {
        self->state.listener = listener;
        self->state.measure(measurement);
      },
      [self](const TextAssignment& order) { self->state.assign(order); },
      [self](const plans::TextStep& order) { self->state.on_step(order); },
      [self](const TextRow& arrived) { self->state.on_row(arrived); },
  };
}

void TextStageIoState::answer(absl::StatusOr<net::ControlBody> body) {
  TextAnswer made;
  made.status = body.status();
  if (body.ok()) made.body = *std::move(body);
  self->send(listener, std::move(made));
}

void TextStageIoState::measure(const TextMeasurement& measurement) {
  if (decoder) return;  // It is late.
  measured = measurement;
  absl::StatusOr<plans::TextRoom> found = room();
  if (!found.ok()) return answer(found.status());
  answer(net::ControlBody(*std::move(found)));
}

absl::StatusOr<plans::TextRoom> TextStageIoState::room() const {
  const gpu::DeviceInfo& info = measured.device->info();
  const plans::TextRequest& request = measured.request;
  if (request.positions > measured.model.positions) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.positions, " positions, the model has ", measured.model.positions));
  }
  plans::TextRoom found;
  found.room = gpu::Decoder::room({measured.model, {}, request.positions}, request.added, info);
  found.room.free_bytes = info.is_host_memory ? gpu::available_memory_bytes() : info.memory_bytes;
  found.is_host_memory = info.is_host_memory;
  return found;
}

void TextStageIoState::assign(const TextAssignment& order) {
  if (decoder || !measured.device) return;
  assignment = order;
  if (absl::Status status = load(); !status.ok()) return answer(std::move(status));
  answer(net::ControlBody(plans::TextReady()));
}

absl::Status TextStageIoState::load() {
  const plans::TextRequest& request = measured.request;
  SKEIN_ASSIGN_OR_RETURN(source, gpu::ModelSource::open(request.folder));
  SKEIN_ASSIGN_OR_RETURN(const uint64_t digest, source->digest());
  if (digest != request.digest || source->model() != measured.model) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.folder,
                     " is another model here; mount the folder of the process that "
                     "draws the text under the same path"));
  }
  const auto read = [this](const std::string& name, std::span<float> out) {
    return source->read(name, out);
  };
  SKEIN_ASSIGN_OR_RETURN(
      decoder, gpu::Decoder::create({measured.model, assignment.order.layers, request.positions},
                                    read, *measured.device));
  assignment.plane->set_plan_secret({plans::kTextGeneration, assignment.order.secret});
  if (!takes_tokens()) open_stream();
  return absl::OkStatus();
}

void TextStageIoState::open_stream() {
  net::TensorInbox::StreamSpec stream;
  stream.generation = plans::kTextGeneration;
  stream.receiver = assignment.self.value;
  stream.kind = kKind;
  stream.row_count = 1;
  stream.row_floats = static_cast<uint32_t>(measured.model.channels);
  stream.sender = assignment.order.previous;
  stream.tensors_max = kRowsMax;
  stream.on_tensor = [to = TextStageIo(self)](const net::TensorKey& key, net::TensorHandle row) {
    caf::anon_send(to, TextRow{key, std::move(row)});
  };
  assignment.plane->inbox().open(std::move(stream));
}

void TextStageIoState::on_step(const plans::TextStep& order) {
  if (!decoder || order.number <= last_step) return;
  last_step = order.number;
  step = order;
  rows_missing = 0;
  early.erase(early.begin(), early.lower_bound({last_step, 0}));
  if (!takes_tokens()) {
    rows_missing = order.count;
    activations.resize(static_cast<size_t>(order.count * measured.model.channels));
    while (!early.empty() && early.begin()->first.first == last_step) {
      const auto [key, row] = *early.begin();
      early.erase(early.begin());
      take(key.second, row);
    }
  }
  if (rows_missing > 0) return;
  if (absl::Status status = extend(); !status.ok()) answer(std::move(status));
}

/// A position is sent once, so each of them counts.
void TextStageIoState::take(uint32_t position, const net::TensorHandle& row) {
  if (position >= step.count || rows_missing == 0) return;
  std::copy(row->begin(), row->end(),
            activations.begin() + int64_t{position} * measured.model.channels);
  --rows_missing;
}

void TextStageIoState::on_row(const TextRow& arrived) {
  const net::TensorKey& key = arrived.key;
  if (key.step > last_step) {
    early[{key.step, key.microbatch}] = arrived.row;
    return;
  }
  if (key.step < last_step || rows_missing == 0) return;
  take(key.microbatch, arrived.row);
  if (rows_missing > 0) return;
  if (absl::Status status = extend(); !status.ok()) answer(std::move(status));
}

absl::Status TextStageIoState::extend() {
  if (step.begin == 0) decoder->clear();
  if (decoder->length() != step.begin) {
    return absl::InternalError(absl::StrCat("a step behind ", step.begin, " positions, and ",
                                            decoder->length(), " are here"));
  }
  const auto in_vocabulary = [v = measured.model.vocab_size](int32_t token) { return token < v; };
  if (takes_tokens() && (static_cast<int64_t>(step.tokens.size()) != step.count ||
                         !std::all_of(step.tokens.begin(), step.tokens.end(), in_vocabulary))) {
    return absl::InvalidArgumentError("the tokens are none of the model's");
  }
  const bool has_head = assignment.order.layers.end == plans::layer_count(measured.model);
  const int64_t floats =
      has_head ? measured.model.vocab_size : step.count * measured.model.channels;
  auto output = std::make_shared<std::vector<float>>(static_cast<size_t>(floats));
  gpu::Decoder::Input input;
  if (takes_tokens()) {
    input.tokens = step.tokens;
  } else {
    input.activations = activations;
  }
  gpu::Work work;
  work.run = [&](gpu::Ops& ops) { return decoder->extend(ops, input, *output); };
  SKEIN_RETURN_IF_ERROR(measured.device->run(std::move(work)));
  send_on(std::move(output));
  return absl::OkStatus();
}

void TextStageIoState::send_on(std::shared_ptr<const std::vector<float>> output) {
  const plans::TextLayers& order = assignment.order;
  const bool has_head = order.layers.end == plans::layer_count(measured.model);
  const std::string& address =
      order.next_address.empty() ? assignment.coordinator_address : order.next_address;
  const int64_t count = has_head ? 1 : step.count;
  const size_t width = output->size() / static_cast<size_t>(count);
  for (int64_t position = 0; position < count; ++position) {
    net::DataPlane::Rows rows;
    rows.key = {plans::kTextGeneration, order.next.value, kKind, last_step,
                static_cast<uint32_t>(position)};
    rows.row_count = 1;
    rows.payload = std::span(*output).subspan(static_cast<size_t>(position) * width, width);
    rows.owner = output;
    assignment.plane->send(address, std::move(rows));
  }
}

}  // namespace skein::actors
