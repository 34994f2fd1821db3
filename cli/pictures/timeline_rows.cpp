#include "cli/pictures/timeline_rows.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/report/number_text.hpp"

namespace skein::cli {
namespace {

SlotKind kind_of(plans::ActionType type) {
  switch (type) {
    case plans::ActionType::kForward:
      return SlotKind::kForward;
    case plans::ActionType::kBackward:
      return SlotKind::kBackward;
    case plans::ActionType::kBackwardInput:
      return SlotKind::kBackwardInput;
    case plans::ActionType::kBackwardWeight:
      return SlotKind::kBackwardWeight;
  }
  return SlotKind::kForward;
}

PictureSlot slot_of(const plans::Action& action, double start_us, double end_us) {
  return {kind_of(action.type),
          action.stage,
          action.microbatch,
          absl::StrCat(action.microbatch),
          start_us,
          end_us};
}

/// Which row a worker has, and which stages.
struct Places {
  std::map<uint32_t, size_t> row_of_worker;
  std::map<uint32_t, std::vector<int32_t>> stages_of_worker;
};

Places places_of(const plans::Plan& plan, const plans::Simulation& simulation) {
  Places places;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (const plans::ReplicaPlan& replica : plan.stages[s].replicas) {
      places.stages_of_worker[replica.worker.value].push_back(static_cast<int32_t>(s));
    }
  }
  // Pipelines read from top to bottom: workers in the order of their first stage.
  std::vector<uint32_t> order;
  for (const plans::SimulatedWorker& worker : simulation.workers) order.push_back(worker.id.value);
  std::stable_sort(order.begin(), order.end(), [&places](uint32_t a, uint32_t b) {
    return places.stages_of_worker[a] < places.stages_of_worker[b];
  });
  for (size_t row = 0; row < order.size(); ++row) places.row_of_worker[order[row]] = row;
  return places;
}

std::string row_name(uint32_t worker, const std::vector<int32_t>& stages,
                     const plans::ClusterSpec& cluster) {
  std::string name = absl::StrCat("w", worker);
  if (worker >= 1 && worker <= cluster.devices.size()) {
    const std::string& device = cluster.devices[worker - 1].name;
    // Measured devices are called after their workers.
    if (device.starts_with(name)) {
      name = device;
    } else if (!device.empty()) {
      absl::StrAppend(&name, " ", device);
    }
  }
  absl::StrAppend(&name, " s");
  for (size_t i = 0; i < stages.size(); ++i) absl::StrAppend(&name, i == 0 ? "" : ",", stages[i]);
  return name;
}

PictureRow row_of(const plans::SimulatedWorker& worker, int32_t steps, double end_us) {
  PictureRow row;
  for (const plans::SimulatedSlot& slot : worker.slots) {
    if (slot.step >= steps || !(slot.end_us > slot.start_us)) continue;
    if (slot.is_update) {
      row.slots.push_back({SlotKind::kUpdate, 0, -1, "u", slot.start_us, slot.end_us});
    } else {
      row.slots.push_back(slot_of(slot.action, slot.start_us, slot.end_us));
    }
  }
  for (const plans::MemoryPoint& point : worker.memory) {
    if (point.time_us < end_us) row.memory.push_back({point.time_us, point.bytes});
  }
  row.memory_peak_bytes = worker.peak_bytes;
  return row;
}

void add_reductions(const plans::Plan& plan, const plans::Simulation& simulation,
                    const Places& places, int32_t steps, Picture& picture) {
  for (const plans::SimulatedReduction& reduction : simulation.reductions) {
    const plans::ReductionGroup& group = plan.groups[reduction.group.value];
    if (reduction.step >= steps) continue;
    if (group.members.size() < 2 || !(reduction.end_us > reduction.start_us)) continue;
    for (const plans::ReplicaId member : group.members) {
      const uint32_t worker = plans::replica_of(plan, member).worker.value;
      picture.rows[places.row_of_worker.at(worker)].slots.push_back(
          {SlotKind::kReduction, group.stage, -1, "", reduction.start_us, reduction.end_us});
    }
  }
}

/// "0F3" of a measured slice; false if it is something else.
bool read_slice(const actors::SliceReport& slice, PictureSlot& slot) {
  const auto start = static_cast<double>(slice.start_us);
  const double end = start + static_cast<double>(slice.duration_us);
  if (slice.track == 3) {
    slot = {SlotKind::kReduction, 0, -1, "", start, end};
    return true;
  }
  if (slice.track != 0) return false;
  if (const auto action = plans::parse_action(slice.name); action.ok()) {
    slot = slot_of(*action, start, end);
    return true;
  }
  slot = {SlotKind::kUpdate, 0, -1, "u", start, end};
  return slice.name == "update";
}

}  // namespace

double bubble_of(const Picture& picture, const PictureRow& row) {
  double busy = 0;
  for (const PictureSlot& slot : row.slots) {
    if (slot.kind != SlotKind::kReduction) busy += slot.end_us - slot.start_us;
  }
  return picture.end_us > 0 ? std::max(0.0, 1 - busy / picture.end_us) : 0;
}

double bubble_of(const Picture& picture) {
  double sum = 0;
  for (const PictureRow& row : picture.rows) sum += bubble_of(picture, row);
  return picture.rows.empty() ? 0 : sum / static_cast<double>(picture.rows.size());
}

Picture picture_of(const plans::Plan& plan, const plans::Simulation& simulation,
                   const plans::ClusterSpec& cluster, int32_t steps) {
  Picture picture;
  picture.end_us = simulation.step_end_us[static_cast<size_t>(steps) - 1];
  const Places places = places_of(plan, simulation);
  picture.rows.resize(simulation.workers.size());
  picture.many_stages = std::any_of(places.stages_of_worker.begin(), places.stages_of_worker.end(),
                                    [](const auto& each) { return each.second.size() > 1; });
  for (const plans::SimulatedWorker& worker : simulation.workers) {
    PictureRow& row = picture.rows[places.row_of_worker.at(worker.id.value)];
    row = row_of(worker, steps, picture.end_us);
    row.name = row_name(worker.id.value, places.stages_of_worker.at(worker.id.value), cluster);
    if (worker.id.value <= cluster.devices.size()) {
      row.memory_capacity_bytes = cluster.devices[worker.id.value - 1].memory_bytes;
    }
  }
  for (const plans::SimulatedTransfer& transfer : simulation.transfers) {
    if (transfer.step >= steps) continue;
    picture.arrows.push_back({places.row_of_worker.at(transfer.from.value),
                              places.row_of_worker.at(transfer.to.value),
                              transfer.producer.type != plans::ActionType::kForward,
                              transfer.start_us, transfer.end_us});
  }
  add_reductions(plan, simulation, places, steps, picture);
  return picture;
}

namespace {

struct Span {
  uint64_t start_us = UINT64_MAX;
  uint64_t end_us = 0;
  uint64_t size() const { return end_us > start_us ? end_us - start_us : 0; }
};

Span span_of(const actors::TimingsReport& report) {
  Span span;
  for (const actors::SliceReport& slice : report.slices) {
    span.start_us = std::min(span.start_us, slice.start_us);
    span.end_us = std::max(span.end_us, slice.start_us + slice.duration_us);
  }
  return span;
}

/// Pipeline replicas under local updates: the longest of the columns' last profiled steps, and what
/// the others did meanwhile.
Span last_span(const std::vector<actors::TimingsReport>& reports) {
  std::map<int32_t, Span> last;  // By column.
  for (const actors::TimingsReport& report : reports) {
    const Span span = span_of(report);
    Span& own = last[report.pipeline];
    if (own.size() == 0 || span.start_us > own.start_us) own = span;
  }
  Span longest;
  for (const auto& [column, span] : last) {
    if (span.size() > longest.size()) longest = span;
  }
  return longest;
}

}  // namespace

Picture picture_of(const std::vector<actors::TimingsReport>& reports) {
  Picture picture;
  uint64_t step = 0;
  for (const actors::TimingsReport& report : reports) step = std::max(step, report.step);
  const bool has_columns = std::any_of(reports.begin(), reports.end(),
                                       [](const auto& report) { return report.pipeline >= 0; });
  const Span shown = has_columns ? last_span(reports) : Span{0, UINT64_MAX};
  const auto is_shown = [&](const actors::TimingsReport& report) {
    const Span span = span_of(report);
    if (has_columns) return span.start_us < shown.end_us && span.end_us > shown.start_us;
    return report.step == step;
  };
  std::map<std::pair<int32_t, uint32_t>, PictureRow> rows;
  std::map<uint32_t, int32_t> first_stage;
  for (const actors::TimingsReport& report : reports) {
    if (!is_shown(report)) continue;
    first_stage.try_emplace(report.worker.value, report.stage);
    const int32_t stage = first_stage[report.worker.value];
    PictureRow& row = rows[{stage, report.worker.value}];
    row.name = absl::StrCat("w", report.worker.value, " s", stage);
    for (const actors::SliceReport& slice : report.slices) {
      PictureSlot slot;
      if (read_slice(slice, slot)) row.slots.push_back(slot);
    }
  }
  double start = -1;
  double end = 0;
  for (auto& [place, row] : rows) {
    std::stable_sort(row.slots.begin(), row.slots.end(),
                     [](const auto& a, const auto& b) { return a.start_us < b.start_us; });
    for (const PictureSlot& slot : row.slots) {
      start = start < 0 ? slot.start_us : std::min(start, slot.start_us);
      end = std::max(end, slot.end_us);
    }
    picture.rows.push_back(std::move(row));
  }
  picture.end_us = end;
  if (has_columns && !picture.rows.empty()) {
    start = std::max(start, static_cast<double>(shown.start_us));
    end = std::min(end, static_cast<double>(shown.end_us));
  }
  return cut(picture, std::max(start, 0.0), end);
}

Picture cut(const Picture& picture, double from_us, double to_us) {
  Picture part = picture;
  part.end_us = to_us - from_us;
  const auto trim = [from_us, to_us](double& start, double& end) {
    const bool is_inside = end > from_us && start < to_us;
    start = std::max(start, from_us) - from_us;
    end = std::min(end, to_us) - from_us;
    return is_inside;
  };
  for (PictureRow& row : part.rows) {
    std::erase_if(row.slots, [&trim](auto& slot) { return !trim(slot.start_us, slot.end_us); });
    std::vector<PictureMemory> memory;
    for (const PictureMemory& point : row.memory) {
      if (point.time_us >= to_us) break;
      const double time = std::max(0.0, point.time_us - from_us);
      if (!memory.empty() && memory.back().time_us == time) memory.pop_back();
      memory.push_back({time, point.bytes});
    }
    row.memory = std::move(memory);
  }
  std::erase_if(part.arrows, [&trim](auto& arrow) { return !trim(arrow.start_us, arrow.end_us); });
  return part;
}

const char* name_of(SlotKind kind) {
  switch (kind) {
    case SlotKind::kForward:
      return "F";
    case SlotKind::kBackward:
      return "B";
    case SlotKind::kBackwardInput:
      return "I";
    case SlotKind::kBackwardWeight:
      return "W";
    case SlotKind::kUpdate:
      return "update";
    case SlotKind::kReduction:
      return "all-reduce";
  }
  return "";
}

const char* colour_of(SlotKind kind) {
  switch (kind) {
    case SlotKind::kForward:
      return "#6fa8dc";
    case SlotKind::kBackward:
      return "#f6a04d";
    case SlotKind::kBackwardInput:
      return "#3fb8af";
    case SlotKind::kBackwardWeight:
      return "#7cc36a";
    case SlotKind::kUpdate:
      return "#b48ad6";
    case SlotKind::kReduction:
      return "#e0708f";
  }
  return "#000000";
}

std::vector<SlotKind> kinds_of(const Picture& picture) {
  std::set<SlotKind> kinds;
  for (const PictureRow& row : picture.rows) {
    for (const PictureSlot& slot : row.slots) kinds.insert(slot.kind);
  }
  return {kinds.begin(), kinds.end()};
}

std::string memory_text(const Picture& picture, int64_t bytes) {
  if (picture.has_units) return bytes_text(bytes);
  return absl::StrCat(bytes, bytes == 1 ? " stash" : " stashes");
}

std::vector<double> axis_ticks(double end_us, int count_max) {
  if (!(end_us > 0)) return {0};
  double step = std::pow(10, std::floor(std::log10(end_us / count_max)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (end_us / (step * factor) <= count_max) {
      step *= factor;
      break;
    }
  }
  std::vector<double> ticks;
  for (int i = 0; i * step <= end_us * (1 + 1e-9); ++i) ticks.push_back(i * step);
  return ticks;
}

std::vector<std::string> axis_labels(const std::vector<double>& ticks, bool has_units) {
  std::string unit;
  const double factor = has_units && !ticks.empty() ? time_unit(ticks.back(), unit) : 1;
  std::vector<std::string> labels;
  for (const double tick : ticks) labels.push_back(absl::StrFormat("%.6g", tick * factor));
  if (!unit.empty()) absl::StrAppend(&labels.back(), " ", unit);
  return labels;
}

}  // namespace skein::cli
