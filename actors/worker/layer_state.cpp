#include "actors/worker/layer_state.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

constexpr size_t kSealFloats = 2;

/// As if the layer were a stage of its own: with the copy of a tied embedding.
std::vector<plans::ParameterSpec> own_parameters(const plans::ModelSpec& spec, int64_t layer) {
  return plans::layer_parameters(spec, layer, {layer, layer + 1});
}

uint32_t checksum(std::span<const float> values) { return gpu::crc32c(std::as_bytes(values)); }

absl::StatusOr<size_t> position_of(const gpu::StageModel& model, const std::string& name) {
  const auto& parameters = model.parameters();
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const auto& each) { return each.name == name; });
  if (found == parameters.end()) {
    return absl::NotFoundError(absl::StrCat("the stage has no parameter ", name));
  }
  return static_cast<size_t>(found - parameters.begin());
}

/// Calls `visit(position in the model, kind, offset, count)` for each piece of the layer's state.
template <class Visit>
absl::Status for_each_piece(const plans::ModelSpec& spec, int64_t layer,
                            const gpu::StageModel& model, Visit visit) {
  size_t offset = 0;
  for (const plans::ParameterSpec& parameter : own_parameters(spec, layer)) {
    SKEIN_ASSIGN_OR_RETURN(const size_t position, position_of(model, parameter.name));
    const auto count = static_cast<size_t>(plans::element_count(parameter));
    for (gpu::StateKind kind : gpu::kStateKinds) {
      SKEIN_RETURN_IF_ERROR(visit(position, kind, offset, count));
      offset += count;
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t layer_state_floats(const plans::ModelSpec& model, int64_t layer) {
  int64_t floats = kSealFloats;
  for (const plans::ParameterSpec& parameter : own_parameters(model, layer)) {
    floats += static_cast<int64_t>(gpu::kStateKinds.size()) * plans::element_count(parameter);
  }
  return floats;
}

absl::Status copy_layer_state(const plans::ModelSpec& spec, int64_t layer,
                              const gpu::StageModel& from, std::span<float> out) {
  SKEIN_CHECK(static_cast<int64_t>(out.size()) == layer_state_floats(spec, layer)) << out.size();
  return for_each_piece(spec, layer, from,
                        [&](size_t position, gpu::StateKind kind, size_t offset, size_t count) {
                          return from.read_state(position, kind, out.subspan(offset, count));
                        });
}

void seal_layer_state(int64_t layer, std::span<float> state) {
  const std::span<const float> body = state.first(state.size() - kSealFloats);
  state[body.size()] = std::bit_cast<float>(checksum(body));
  state[body.size() + 1] = std::bit_cast<float>(static_cast<uint32_t>(layer));
}

absl::Status read_layer_state(const plans::ModelSpec& spec, int64_t layer,
                              const gpu::StageModel& from, std::span<float> out) {
  SKEIN_RETURN_IF_ERROR(copy_layer_state(spec, layer, from, out));
  seal_layer_state(layer, out);
  return absl::OkStatus();
}

absl::Status read_layer_state(const plans::ModelSpec& spec, int64_t layer,
                              const gpu::CheckpointReader& from, const std::string& optimizer,
                              std::span<float> out) {
  SKEIN_CHECK(static_cast<int64_t>(out.size()) == layer_state_floats(spec, layer)) << out.size();
  const std::span<const char* const> suffixes = gpu::moment_suffixes(optimizer);
  size_t offset = 0;
  for (const plans::ParameterSpec& parameter : own_parameters(spec, layer)) {
    const auto count = static_cast<size_t>(plans::element_count(parameter));
    const std::span<float> state = out.subspan(offset, gpu::kStateKinds.size() * count);
    std::fill(state.begin(), state.end(), 0.0f);
    SKEIN_RETURN_IF_ERROR(from.read(parameter.name, state.first(count)));
    for (size_t i = 0; i < suffixes.size(); ++i) {
      SKEIN_RETURN_IF_ERROR(from.read(absl::StrCat(parameter.name, suffixes[i]),
                                      state.subspan((i + 1) * count, count)));
    }
    offset += state.size();
  }
  seal_layer_state(layer, out);
  return absl::OkStatus();
}

absl::Status check_layer_state(const plans::ModelSpec& spec, int64_t layer,
                               std::span<const float> state) {
  const int64_t floats = layer_state_floats(spec, layer);
  if (static_cast<int64_t>(state.size()) != floats) {
    return absl::DataLossError(absl::StrCat("the state of layer ", layer, " has ", state.size(),
                                            " floats instead of ", floats));
  }
  const std::span<const float> body = state.first(state.size() - kSealFloats);
  const bool is_whole = std::bit_cast<uint32_t>(state[body.size()]) == checksum(body) &&
                        std::bit_cast<uint32_t>(state[body.size() + 1]) == layer;
  if (is_whole) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the state of layer ", layer, " was damaged: its checksum is wrong"));
}

std::vector<gpu::SavedParameter> saved_parameters(const plans::ModelSpec& spec, int64_t layer,
                                                  std::span<const float> state) {
  std::vector<gpu::SavedParameter> parameters;
  size_t offset = 0;
  for (const plans::ParameterSpec& parameter : own_parameters(spec, layer)) {
    const auto count = static_cast<size_t>(plans::element_count(parameter));
    parameters.push_back({parameter, state.subspan(offset, count),
                          state.subspan(offset + count, count),
                          state.subspan(offset + 2 * count, count)});
    offset += gpu::kStateKinds.size() * count;
  }
  return parameters;
}

absl::Status copy_layer_state(const plans::ModelSpec& spec, int64_t layer,
                              std::span<const gpu::SavedParameter> parameters,
                              std::span<float> out) {
  SKEIN_CHECK(static_cast<int64_t>(out.size()) == layer_state_floats(spec, layer)) << out.size();
  auto to = out.begin();
  for (const plans::ParameterSpec& parameter : own_parameters(spec, layer)) {
    const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const auto& each) {
      return each.spec.name == parameter.name;
    });
    if (found == parameters.end()) {
      return absl::NotFoundError(absl::StrCat("the stage has no parameter ", parameter.name));
    }
    for (const std::span<const float> piece :
         {found->weight, found->moment_first, found->moment_second}) {
      SKEIN_CHECK(static_cast<int64_t>(piece.size()) == plans::element_count(parameter))
          << parameter.name << " has " << piece.size() << " elements";
      to = std::copy(piece.begin(), piece.end(), to);
    }
  }
  return absl::OkStatus();
}

absl::Status write_layer_state(const plans::ModelSpec& spec, int64_t layer,
                               std::span<const float> state, gpu::StageModel& to) {
  SKEIN_RETURN_IF_ERROR(check_layer_state(spec, layer, state));
  return for_each_piece(spec, layer, to,
                        [&](size_t position, gpu::StateKind kind, size_t offset, size_t count) {
                          return to.write_state(position, kind, state.subspan(offset, count));
                        });
}

absl::StatusOr<net::TensorHandle> find_layer_state(const plans::ModelSpec& spec, int64_t layer,
                                                   uint64_t step,
                                                   const std::vector<HeldState>& held) {
  for (const HeldState& each : held) {
    if (each.step != step || !each.layers.contains(layer)) continue;
    if (!each.model) return each.copies.at(layer);
    net::TensorHandle memory = make_layer_memory(layer_state_floats(spec, layer));
    SKEIN_RETURN_IF_ERROR(read_layer_state(spec, layer, *each.model, *memory));
    return memory;
  }
  return absl::NotFoundError(
      absl::StrCat("the state of layer ", layer, " after ", step, " steps is not held here"));
}

net::TensorHandle make_layer_memory(int64_t floats) {
  struct Memory {
    std::vector<float> values;
    std::span<float> span;
  };
  auto memory = std::make_shared<Memory>();
  memory->values.resize(static_cast<size_t>(floats));
  memory->span = memory->values;
  return net::TensorHandle(memory, &memory->span);
}

}  // namespace skein::actors
