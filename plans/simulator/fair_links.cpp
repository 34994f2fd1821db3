#include "plans/simulator/fair_links.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// Shares that differ by less are the same bottleneck: rounding only.
constexpr double kTie = 1 + 1e-12;

}  // namespace

FairLinks::FairLinks(std::vector<double> bytes_per_us) {
  for (double capacity : bytes_per_us) {
    SKEIN_CHECK(capacity > 0) << capacity << " bytes per microsecond";
    links_.emplace_back().bytes_per_us = capacity;
  }
}

void FairLinks::start(const LinkSet& links, double bytes, int32_t tag, double now_us) {
  SKEIN_CHECK(links.count > 0 && bytes > 0 && tag >= 0) << links.count << " links, " << bytes;
  if (unused_.empty()) {
    unused_.push_back(static_cast<int32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const int32_t id = unused_.back();
  unused_.pop_back();
  Flow& flow = flows_[static_cast<size_t>(id)];
  flow = {};
  flow.links = links;
  flow.left_bytes = bytes;
  flow.since_us = now_us;
  flow.tag = tag;
  double alone = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < static_cast<size_t>(links.count); ++i) {
    Link& link = links_[static_cast<size_t>(links.ids[i])];
    flow.position[i] = static_cast<int32_t>(link.flows.size());
    link.flows.push_back(id);
    alone = std::min(alone, link.bytes_per_us);
  }
  if (is_alone(flow)) return set_rate(id, alone, now_us);
  mark(links.ids[0]);
}

bool FairLinks::is_alone(const Flow& flow) const {
  for (size_t i = 0; i < static_cast<size_t>(flow.links.count); ++i) {
    if (links_[static_cast<size_t>(flow.links.ids[i])].flows.size() > 1) return false;
  }
  return true;
}

void FairLinks::mark(int32_t link) {
  if (std::exchange(links_[static_cast<size_t>(link)].is_dirty, true)) return;
  dirty_.push_back(link);
}

double FairLinks::next_end_us() const {
  return ends_.empty() ? std::numeric_limits<double>::infinity() : ends_.top_key();
}

int32_t FairLinks::end_next() {
  const int32_t id = ends_.top();
  ends_.erase(id);
  Flow& flow = flows_[static_cast<size_t>(id)];
  for (size_t i = 0; i < static_cast<size_t>(flow.links.count); ++i) {
    std::vector<int32_t>& others = links_[static_cast<size_t>(flow.links.ids[i])].flows;
    const int32_t moved = others.back();
    others[static_cast<size_t>(flow.position[i])] = moved;
    others.pop_back();
    Flow& mover = flows_[static_cast<size_t>(moved)];
    for (size_t k = 0; k < static_cast<size_t>(mover.links.count); ++k) {
      if (mover.links.ids[k] == flow.links.ids[i]) mover.position[k] = flow.position[i];
    }
    if (!others.empty()) mark(flow.links.ids[i]);
  }
  unused_.push_back(id);
  return std::exchange(flow.tag, -1);
}

void FairLinks::settle(double now_us) {
  if (dirty_.empty()) return;
  ++round_;
  part_rates_.resize(flows_.size());
  for (int32_t link : dirty_) {
    links_[static_cast<size_t>(link)].is_dirty = false;
    if (links_[static_cast<size_t>(link)].visited == round_) continue;
    collect(link);
    share();
    for (int32_t flow : part_flows_) {
      set_rate(flow, part_rates_[static_cast<size_t>(flow)], now_us);
    }
  }
  dirty_.clear();
}

/// Finds all links and flows that are connected with `link`.
void FairLinks::collect(int32_t link) {
  part_links_.assign(1, link);
  part_flows_.clear();
  links_[static_cast<size_t>(link)].visited = round_;
  for (size_t next = 0; next < part_links_.size(); ++next) {
    for (int32_t id : links_[static_cast<size_t>(part_links_[next])].flows) {
      Flow& flow = flows_[static_cast<size_t>(id)];
      if (std::exchange(flow.visited, round_) == round_) continue;
      part_flows_.push_back(id);
      for (size_t i = 0; i < static_cast<size_t>(flow.links.count); ++i) {
        Link& other = links_[static_cast<size_t>(flow.links.ids[i])];
        if (std::exchange(other.visited, round_) != round_)
          part_links_.push_back(flow.links.ids[i]);
      }
    }
  }
}

/// Progressive filling: the link with the least to give to each of its open flows fixes them.
void FairLinks::share() {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  for (int32_t flow : part_flows_) flows_[static_cast<size_t>(flow)].is_fixed = false;
  part_shares_.clear();
  for (int32_t id : part_links_) {
    Link& link = links_[static_cast<size_t>(id)];
    link.free_rate = link.bytes_per_us;
    link.open_count = static_cast<int32_t>(link.flows.size());
    link.part = static_cast<int32_t>(part_shares_.size());
    part_shares_.push_back(link.open_count > 0 ? link.free_rate / link.open_count : kNone);
  }
  for (;;) {
    const double least = *std::min_element(part_shares_.begin(), part_shares_.end());
    if (least == kNone) return;
    for (size_t i = 0; i < part_shares_.size(); ++i) {
      if (part_shares_[i] <= least * kTie) fix(part_links_[i], least);
    }
  }
}

/// Gives the open flows of a bottleneck their rate, and takes it from their other links.
void FairLinks::fix(int32_t bottleneck, double rate) {
  for (int32_t id : links_[static_cast<size_t>(bottleneck)].flows) {
    Flow& flow = flows_[static_cast<size_t>(id)];
    if (std::exchange(flow.is_fixed, true)) continue;
    part_rates_[static_cast<size_t>(id)] = rate;
    for (size_t i = 0; i < static_cast<size_t>(flow.links.count); ++i) {
      Link& link = links_[static_cast<size_t>(flow.links.ids[i])];
      link.free_rate -= rate;
      part_shares_[static_cast<size_t>(link.part)] = --link.open_count > 0
                                                         ? link.free_rate / link.open_count
                                                         : std::numeric_limits<double>::infinity();
    }
  }
}

void FairLinks::set_rate(int32_t id, double rate, double now_us) {
  Flow& flow = flows_[static_cast<size_t>(id)];
  if (flow.rate == rate) return;
  flow.left_bytes = std::max(0.0, flow.left_bytes - flow.rate * (now_us - flow.since_us));
  flow.since_us = now_us;
  flow.rate = rate;
  ends_.set(id, now_us + flow.left_bytes / rate);
}

double FairLinks::rate(int32_t tag) const {
  for (const Flow& flow : flows_) {
    if (flow.tag == tag) return flow.rate;
  }
  return 0;
}

}  // namespace skein::plans
