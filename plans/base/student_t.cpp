#include "plans/base/student_t.hpp"

#include <cmath>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

constexpr int kTermsMax = 500;  // Terms of the continued fraction; some ten are needed.
constexpr int kHalvings = 200;  // Halvings of an interval of doubles, until its ends meet.
constexpr double kPrecision = 1e-15;
constexpr double kTiny = 1e-300;  // In the place of zero in a denominator.

double kept_from_zero(double value) { return std::abs(value) < kTiny ? kTiny : value; }

/// The continued fraction of the incomplete beta function, by Lentz's method.
double beta_fraction(double a, double b, double x) {
  double c = 1;
  double d = 1 / kept_from_zero(1 - (a + b) * x / (a + 1));
  double result = d;
  for (int m = 1; m <= kTermsMax; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / kept_from_zero(1 + even * d);
    c = kept_from_zero(1 + even / c);
    result *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / kept_from_zero(1 + odd * d);
    c = kept_from_zero(1 + odd / c);
    result *= d * c;
    if (std::abs(d * c - 1) < kPrecision) break;
  }
  return result;
}

/// The regularised incomplete beta function I_x(a, b).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  // The fraction converges fast on one side of the mean only.
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

/// The chance that |T| exceeds t >= 0.
double two_tails(double t, double freedom) {
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

}  // namespace

double student_t_quantile(double probability, int64_t freedom) {
  SKEIN_CHECK(probability > 0 && probability < 1 && freedom >= 1)
      << probability << " at " << freedom << " degrees of freedom";
  const double tails = 2 * std::min(probability, 1 - probability);
  double low = 0, high = 1;
  while (two_tails(high, static_cast<double>(freedom)) > tails) high *= 2;
  for (int i = 0; i < kHalvings && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    (two_tails(middle, static_cast<double>(freedom)) > tails ? low : high) = middle;
  }
  return probability < 0.5 ? -high : high;
}

bool MeanInterval::is_apart_from(const MeanInterval& other) const {
  if (!half_width || !other.half_width) return false;
  return high() < other.low() || other.high() < low();
}

MeanInterval mean_interval(std::span<const double> values, double confidence) {
  SKEIN_CHECK(!values.empty()) << "no values";
  const auto count = static_cast<double>(values.size());
  MeanInterval interval;
  for (const double value : values) interval.mean += value / count;
  if (values.size() == 1) return interval;
  double squares = 0;
  for (const double value : values) squares += (value - interval.mean) * (value - interval.mean);
  const double error = std::sqrt(squares / (count - 1) / count);
  const double t =
      student_t_quantile((1 + confidence) / 2, static_cast<int64_t>(values.size()) - 1);
  interval.half_width = t * error;
  return interval;
}

}  // namespace skein::plans
