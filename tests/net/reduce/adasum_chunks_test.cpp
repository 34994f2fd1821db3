#include "net/reduce/adasum_chunks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "net/reduce/adasum.hpp"
#include "plans/base/rng.hpp"
#include "plans/collectives/weight_slices.hpp"
#include "tests/net/reduce/random_values.hpp"
#include "tests/net/reduce/threaded_exchange.hpp"

namespace skein::net {
namespace {

using Vector = std::vector<float>;

/// What the members of a group make of `values`, each of whom owns some chunks: all of it.
std::vector<Vector> in_chunks(const std::vector<Vector>& values, const std::vector<size_t>& tensors,
                              uint32_t chunk_floats, const std::vector<double>& weights) {
  const auto members = static_cast<uint32_t>(values.size());
  const auto chunks =
      static_cast<uint32_t>(plans::weight_chunk_count(values[0].size(), chunk_floats));
  std::vector<AdasumChunks> all;
  for (uint32_t m = 0; m < members; ++m) {
    all.emplace_back(AdasumChunks::Options{tensors, members, chunk_floats});
  }
  const auto parts_of = [&](uint32_t chunk) {
    std::vector<std::span<const float>> parts;
    const size_t first = size_t{chunk} * chunk_floats;
    const size_t count = std::min<size_t>(chunk_floats, values[0].size() - first);
    for (const Vector& each : values) parts.push_back(std::span(each).subspan(first, count));
    return parts;
  };
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    all[plans::chunk_owner(chunk, chunks, members)].add(chunk, parts_of(chunk));
  }
  for (uint32_t from = 0; from < members; ++from) {
    const std::vector<float> dots = all[from].dots();
    EXPECT_EQ(dots.size(), AdasumChunks::dots_floats(tensors.size(), members));
    for (AdasumChunks& to : all) to.on_dots(from, dots);
  }
  std::vector<Vector> results(members, Vector(values[0].size()));
  for (uint32_t m = 0; m < members; ++m) {
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const auto parts = parts_of(chunk);
      all[m].reduce(chunk, parts, weights,
                    std::span(results[m]).subspan(size_t{chunk} * chunk_floats, parts[0].size()));
    }
  }
  return results;
}

TEST(AdasumChunks, IsAdasumTensorByTensorWhateverTheChunks) {
  const std::vector<std::vector<size_t>> shapes = {
      {5}, {1, 1, 1}, {3, 0, 4, 1}, {17, 64, 1, 300, 5}};
  for (uint32_t ranks = 2; ranks <= 9; ++ranks) {
    for (const auto& shape : shapes) {
      for (uint32_t chunk_floats : {1u, 7u, 64u, 1'000u}) {
        size_t floats = 0;
        for (size_t each : shape) floats += each;
        const std::vector<Vector> inputs = random_values(ranks, floats);
        std::vector<Vector> expected = inputs;
        reduce_all(expected,
                   [&](Exchange& exchange, Vector& each) { return adasum(exchange, each, shape); });
        const auto results = in_chunks(inputs, shape, chunk_floats, std::vector<double>(ranks));
        for (size_t i = 0; i < floats; ++i) {
          ASSERT_NEAR(results[0][i], expected[0][i], 1e-5) << ranks << " ranks, float " << i;
        }
        for (const Vector& each : results) EXPECT_EQ(each, results[0]) << "the same bits";
      }
    }
  }
}

TEST(AdasumChunks, WhatFollowsTheTensorsIsAMean) {
  const auto results = in_chunks({{3, 0, 1, 10}, {0, 4, 3, 30}}, {2}, 3, {0.25, 0.75});
  EXPECT_EQ(results[0], (Vector{3, 4, 2.5, 25}));
}

TEST(AdasumChunks, ARepeatAndASizeThatDoesNotFitChangeNothing) {
  AdasumChunks chunks({{2}, 2, 2});
  const Vector a = {1, 0}, b = {0, 1};
  const std::vector<std::span<const float>> parts = {a, b};
  chunks.add(0, parts);
  chunks.on_dots(0, chunks.dots());
  chunks.on_dots(0, std::vector<float>(6, 9.0F));
  chunks.on_dots(1, std::vector<float>(1));
  EXPECT_EQ(chunks.dots_count(), 1u);
  Vector out(2);
  chunks.reduce(0, parts, std::vector<double>(2), out);
  EXPECT_EQ(out, (Vector{1, 1}));
}

}  // namespace
}  // namespace skein::net
