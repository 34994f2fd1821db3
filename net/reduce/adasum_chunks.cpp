#include "net/reduce/adasum_chunks.hpp"

#include <algorithm>
#include <utility>

#include "net/reduce/adasum.hpp"
#include "plans/collectives/weight_slices.hpp"

namespace skein::net {
namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  AdasumDots dots;
  add_dots(a, b, dots);
  return dots.ab;
}

/// A double as the sum of two floats: it travels among them. 48 bits of it.
std::pair<float, float> halves_of(double value) {
  const auto high = static_cast<float>(value);
  return {high, static_cast<float>(value - high)};
}

}  // namespace

AdasumChunks::AdasumChunks(Options options)
    : options_(std::move(options)), own_(options_.tensors.size() * pairs()) {}

template <class Visit>
void AdasumChunks::for_each_piece(uint32_t chunk, size_t floats, Visit visit) const {
  const size_t begin = size_t{chunk} * options_.chunk_floats;
  const size_t end = begin + floats;
  size_t from = 0;
  for (size_t tensor = 0; tensor < options_.tensors.size() && from < end; ++tensor) {
    const size_t to = from + options_.tensors[tensor];
    const size_t first = std::max(from, begin);
    const size_t last = std::min(to, end);
    if (first < last) visit(tensor, first - begin, last - first);
    from = to;
  }
  const size_t first = std::max(from, begin);
  if (first < end) visit(options_.tensors.size(), first - begin, end - first);
}

void AdasumChunks::add(uint32_t chunk, Parts parts) {
  for_each_piece(chunk, parts[0].size(), [&](size_t tensor, size_t first, size_t count) {
    if (tensor == options_.tensors.size()) return;
    double* dots = &own_[tensor * pairs()];
    for (size_t i = 0; i < parts.size(); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        *dots++ += dot(parts[i].subspan(first, count), parts[j].subspan(first, count));
      }
    }
  });
}

size_t AdasumChunks::dots_floats(size_t tensor_count, uint32_t member_count) {
  return 2 * tensor_count * pairs_of(member_count);
}

std::vector<float> AdasumChunks::dots() const {
  std::vector<float> all;
  all.reserve(2 * own_.size());
  for (double each : own_) {
    const auto [high, low] = halves_of(each);
    all.insert(all.end(), {high, low});
  }
  return all;
}

void AdasumChunks::on_dots(uint32_t member, std::span<const float> dots) {
  if (dots.size() < 2 * own_.size()) return;
  std::vector<double> all(own_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = double{dots[2 * i]} + dots[2 * i + 1];
  said_.emplace(member, std::move(all));
}

void AdasumChunks::find_coefficients() {
  const size_t members = options_.member_count;
  for (size_t tensor = 0; tensor < options_.tensors.size(); ++tensor) {
    std::vector<double> gram(members * members);
    size_t pair = tensor * pairs();
    for (size_t i = 0; i < members; ++i) {
      for (size_t j = 0; j <= i; ++j, ++pair) {
        double sum = 0;
        for (const auto& [member, dots] : said_) sum += dots[pair];
        gram[i * members + j] = gram[j * members + i] = sum;
      }
    }
    coefficients_.push_back(adasum_coefficients(gram, members));
  }
}

void AdasumChunks::reduce(uint32_t chunk, Parts parts, std::span<const double> weights,
                          std::span<float> out) {
  if (coefficients_.empty()) find_coefficients();
  for_each_piece(chunk, out.size(), [&](size_t tensor, size_t first, size_t count) {
    std::vector<std::span<const float>> pieces;
    for (const std::span<const float> part : parts) pieces.push_back(part.subspan(first, count));
    const bool is_mean = tensor == options_.tensors.size();
    plans::add_weighted(pieces, is_mean ? weights : std::span<const double>(coefficients_[tensor]),
                        out.subspan(first, count));
  });
}

}  // namespace skein::net
