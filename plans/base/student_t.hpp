#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace skein::plans {

/// The value that a variable with Student's t distribution stays below with `probability`, in
/// (0, 1), to ten digits. `freedom` >= 1 degrees.
double student_t_quantile(double probability, int64_t freedom);

/// A mean and the interval that holds the true one with some confidence.
struct MeanInterval {
  double mean = 0;
  /// Half of the interval's width; none for a single value, which says nothing about its spread.
  std::optional<double> half_width;

  double low() const { return mean - half_width.value_or(0); }
  double high() const { return mean + half_width.value_or(0); }
  /// False if nothing is known about the spread of one of them: then nothing is known of this.
  bool is_apart_from(const MeanInterval& other) const;
  bool operator==(const MeanInterval&) const = default;
};

/// The mean, with its interval, of normal values whose spread is not known (Student, 1908).
/// `values` is not empty; `confidence` in (0, 1), usually 0.95.
MeanInterval mean_interval(std::span<const double> values, double confidence);

}  // namespace skein::plans
