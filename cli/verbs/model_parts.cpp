#include "cli/verbs/model_parts.hpp"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/report/number_text.hpp"
#include "cli/verbs/model_memory.hpp"
#include "gpu/host/machine_memory.hpp"
#include "gpu/model/decoder.hpp"
#include "plans/planner/memory_cut.hpp"

namespace skein::cli {
namespace {

using Devices = std::vector<std::unique_ptr<gpu::Device>>;

int64_t free_bytes(const gpu::Device& device, int64_t host_devices) {
  if (!device.info().is_host_memory) return device.info().memory_bytes;
  return gpu::available_memory_bytes() / host_devices;
}

std::vector<plans::LayerRoom> rooms_of(const DecodingNeed& need, const Devices& devices) {
  const int64_t hosts = std::count_if(devices.begin(), devices.end(), [](const auto& device) {
    return device->info().is_host_memory;
  });
  std::vector<plans::LayerRoom> rooms;
  for (const auto& device : devices) {
    plans::LayerRoom& room = rooms.emplace_back(
        gpu::Decoder::room({need.model, {}, need.positions}, need.added, device->info()));
    room.free_bytes = free_bytes(*device, hosts);
  }
  return rooms;
}

absl::Status refuse(const DecodingNeed& need, const Devices& devices,
                    const std::vector<plans::LayerRoom>& rooms, const plans::MemoryCut& cut) {
  MemoryNeed all;
  all.work = absl::StrCat("drawing text with a context of ", need.positions, " tokens");
  all.reduced_by = "a smaller --tokens or a shorter --prompt";
  int64_t available = 0;
  for (size_t i = 0; i < rooms.size(); ++i) {
    available += rooms[i].free_bytes;
    if (cut.ranges[i].size() == 0) continue;
    const gpu::Decoder::Memory memory = gpu::Decoder::memory(
        {need.model, cut.ranges[i], need.positions}, need.added, devices[i]->info());
    all.bytes += memory.total_bytes();
    all.weights_bytes += memory.weights_bytes;
  }
  if (devices.size() == 1) return lacks_memory(all, available, "");
  return lacks_memory(
      all, available,
      absl::StrCat(bytes_text(cut.missing_bytes), " are missing on ", devices.back()->info().name,
                   " for layers ", range_text(cut.ranges.back().begin, cut.ranges.back().end)));
}

}  // namespace

absl::StatusOr<std::vector<gpu::DecoderPipeline::Part>> cut_model(const DecodingNeed& need,
                                                                  const Devices& devices) {
  const std::vector<plans::LayerRoom> rooms = rooms_of(need, devices);
  const plans::MemoryCut cut = plans::cut_by_memory(rooms);
  if (cut.missing_bytes > 0) return refuse(need, devices, rooms, cut);
  std::vector<gpu::DecoderPipeline::Part> parts;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (cut.ranges[i].size() > 0) parts.push_back({devices[i].get(), cut.ranges[i]});
  }
  return parts;
}

std::string parts_text(const std::vector<gpu::DecoderPipeline::Part>& parts) {
  return absl::StrCat("layers ", absl::StrJoin(parts, ", ", [](std::string* out, const auto& part) {
                        absl::StrAppend(out, range_text(part.layers.begin, part.layers.end), " on ",
                                        part.device->info().name);
                      }));
}

}  // namespace skein::cli
