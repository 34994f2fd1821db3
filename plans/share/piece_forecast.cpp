#include "plans/share/piece_forecast.hpp"

#include <algorithm>
#include <cmath>

namespace skein::plans {
namespace {

/// How much of what is usual is what was last. A gap that others have made longer is none that they
/// may fill.
constexpr double kNewest = 0.25;
constexpr double kNewestLonger = 0.05;
/// A longer gap than so many usual ones, and the piece before it, is none of the passes': the job
/// was validating, or waited for a disk. It counts as if it were so long.
constexpr double kGapsMost = 2;
/// So many longer ones in a row are the new usual.
constexpr int kLongerIsUsual = 3;

}  // namespace

void PieceForecast::on_request(int32_t index, uint64_t now_us) {
  if (index < 0 || index > kIndexMax) return;
  const auto place = static_cast<size_t>(index);
  if (usual_.size() <= place) usual_.resize(place + 1);
  // The parts of one piece come one behind the other; and a piece may be asked for while the one
  // before it runs.
  if (next_ < 0 || index + 1 == next_) return;
  Usual& usual = usual_[place];
  double gap_us =
      index == next_ ? static_cast<double>(now_us - std::min(now_us, last_end_us_)) : 0.0;
  if (!usual.gap_us) {
    usual.gap_us = gap_us;
    return;
  }
  const double most_us = kGapsMost * *usual.gap_us + usual.off_us + last_taken_us_;
  usual.longer = gap_us > most_us ? usual.longer + 1 : 0;
  if (usual.longer < kLongerIsUsual) gap_us = std::min(gap_us, most_us);
  usual.off_us += kNewest * (std::abs(gap_us - *usual.gap_us) - usual.off_us);
  const double weight = gap_us < *usual.gap_us ? kNewest : kNewestLonger;
  *usual.gap_us += weight * (gap_us - *usual.gap_us);
}

void PieceForecast::on_end(int32_t index, bool ends_pass, uint64_t taken_us, uint64_t now_us) {
  if (index < 0 || index > kIndexMax) return;
  next_ = ends_pass ? 0 : index + 1;
  last_end_us_ = now_us;
  last_taken_us_ = static_cast<double>(taken_us);
  const auto place = static_cast<size_t>(index);
  if (usual_.size() <= place) usual_.resize(place + 1);
  Usual& usual = usual_[place];
  const auto taken = static_cast<double>(taken_us);
  usual.taken_us = usual.taken_us.value_or(taken);
  *usual.taken_us += kNewest * (taken - *usual.taken_us);
}

std::optional<double> PieceForecast::taken_us(int32_t index) const {
  if (index < 0 || static_cast<size_t>(index) >= usual_.size()) return std::nullopt;
  return usual_[static_cast<size_t>(index)].taken_us;
}

std::optional<PieceForecast::Next> PieceForecast::next() const {
  if (next_ < 0 || static_cast<size_t>(next_) >= usual_.size()) return std::nullopt;
  const Usual& usual = usual_[static_cast<size_t>(next_)];
  if (!usual.gap_us) return std::nullopt;
  const double at_us = static_cast<double>(last_end_us_) + *usual.gap_us;
  return Next{at_us - usual.off_us, at_us + usual.off_us, usual.taken_us.value_or(0)};
}

}  // namespace skein::plans
