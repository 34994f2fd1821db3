#include "plans/profile/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace skein::plans {
namespace {

/// Three layers with different everything; 10, 20, 30 ... us at one row.
Profile three_layers(std::vector<int64_t> rows) {
  Profile profile;
  profile.rows = std::move(rows);
  for (int64_t l = 0; l < 3; ++l) {
    LayerProfile& layer = profile.layers.emplace_back();
    for (int64_t r : profile.rows) {
      const double t = 10.0 * static_cast<double>(l + 1) * static_cast<double>(r);
      layer.at.push_back({t, 2 * t, 3 * t});
    }
    layer.activation_row_bytes = 8 + l;
    layer.stash_row_bytes = 100 * (l + 1);
    layer.parameter_bytes = 1000 * (l + 1);
  }
  return profile;
}

TEST(Profile, AcceptsWhatIsWhole) {
  EXPECT_TRUE(validate(three_layers({1})).ok());
  EXPECT_TRUE(validate(three_layers({1, 4, 9})).ok());
}

TEST(Profile, RefusesWhatIsOutOfRangeWithTheField) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<const char*, std::function<void(Profile&)>>> breaks = {
      {"rows", [](Profile& p) { p.rows.clear(); }},
      {"rows[0]", [](Profile& p) { p.rows[0] = 0; }},
      {"rows[1]", [](Profile& p) { p.rows[1] = p.rows[0]; }},
      {"layers", [](Profile& p) { p.layers.clear(); }},
      {"layers[2].at", [](Profile& p) { p.layers[2].at.pop_back(); }},
      {"layers[1].forward_us", [](Profile& p) { p.layers[1].at[0].forward_us = -1; }},
      {"layers[1].backward_input_us",
       [&](Profile& p) { p.layers[1].at[1].backward_input_us = nan; }},
      {"layers[0].backward_weight_us",
       [&](Profile& p) { p.layers[0].at[1].backward_weight_us = infinity; }},
      {"layers[0].activation_row_bytes", [](Profile& p) { p.layers[0].activation_row_bytes = -1; }},
      {"layers[0].stash_row_bytes", [](Profile& p) { p.layers[0].stash_row_bytes = -1; }},
      {"layers[0].parameter_bytes", [](Profile& p) { p.layers[0].parameter_bytes = -1; }},
      {"state_factor", [](Profile& p) { p.state_factor = -1; }},
      {"activation_factor", [](Profile& p) { p.activation_factor = -1; }},
      {"gradient_factor", [&](Profile& p) { p.gradient_factor = nan; }},
      {"update_us_per_byte", [&](Profile& p) { p.update_us_per_byte = infinity; }},
      {"tied_bytes", [](Profile& p) { p.tied_bytes = 1001; }},
      {"tied_bytes", [](Profile& p) { p.tied_bytes = -1; }},
  };
  for (const auto& [field, spoil] : breaks) {
    Profile profile = three_layers({2, 4});
    spoil(profile);
    const absl::Status status = validate(profile);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(field));
  }
}

TEST(Profile, TimesAreExactAtMeasuredRowsAndLinearBetween) {
  Profile profile = three_layers({2, 4, 8});
  profile.layers[0].at = {{10, 0, 0}, {16, 0, 0}, {20, 0, 0}};
  const std::vector<std::pair<int64_t, double>> expected = {
      {1, 5}, {2, 10}, {3, 13}, {4, 16}, {5, 17}, {6, 18}, {8, 20}, {9, 21}, {16, 28}};
  for (const auto& [rows, us] : expected) {
    EXPECT_DOUBLE_EQ(layer_times(profile, 0, rows).forward_us, us) << rows << " rows";
  }
}

TEST(Profile, OneMeasuredNumberOfRowsMeansInProportion) {
  const Profile profile = three_layers({4});
  for (int64_t rows = 1; rows <= 12; ++rows) {
    EXPECT_DOUBLE_EQ(layer_times(profile, 2, rows).backward_weight_us,
                     90.0 * static_cast<double>(rows));
  }
}

TEST(Profile, TimesBeyondTheLastRowsDoNotFall) {
  Profile profile = three_layers({2, 4});
  profile.layers[0].at = {{10, 0, 0}, {9, 0, 0}};
  EXPECT_DOUBLE_EQ(layer_times(profile, 0, 100).forward_us, 9);
}

TEST(Profile, RangeTimesAreTheSumOfTheLayers) {
  const Profile profile = three_layers({2, 5, 6});
  for (int64_t rows = 1; rows <= 9; ++rows) {
    for (int64_t begin = 0; begin <= 3; ++begin) {
      for (int64_t end = begin; end <= 3; ++end) {
        double total = 0;
        for (int64_t l = begin; l < end; ++l) total += layer_times(profile, l, rows).total_us();
        EXPECT_DOUBLE_EQ(range_times(profile, {begin, end}, rows).total_us(), total);
      }
    }
  }
}

TEST(Profile, AStashHoldsTheStagesInputAndWhatItsLayersKeep) {
  const Profile profile = three_layers({1});
  EXPECT_EQ(stage_memory(profile, {0, 2}, 3, false).stash_bytes, 3 * (100 + 200));
  EXPECT_EQ(stage_memory(profile, {1, 3}, 3, false).stash_bytes, 3 * (8 + 200 + 300));
  EXPECT_EQ(stage_memory(profile, {1, 3}, 3, true).stash_bytes, 3 * (8 + 9 + 10));
  EXPECT_EQ(stage_memory(profile, {1, 3}, 3, true).extra_bytes, 3 * 300);
  EXPECT_EQ(stage_memory(profile, {1, 3}, 3, false).extra_bytes, 0);
  EXPECT_EQ(stage_memory(profile, {1, 3}, 3, false).state_bytes, 4 * 5000);
}

TEST(Profile, ActivationsMayBeKeptAndTravelInFewerBytes) {
  Profile profile = three_layers({1});
  profile.activation_factor = 0.5;
  EXPECT_EQ(kept_row_bytes(profile, 0), 4);
  EXPECT_EQ(cut_row_bytes(profile, 1), 4);
  EXPECT_EQ(stage_memory(profile, {1, 2}, 3, false).stash_bytes, 3 * (4 + 200));
  EXPECT_EQ(stage_memory(profile, {1, 2}, 4, true).stash_bytes, 4 * (4 + 5)) << "4.5 is rounded up";
}

TEST(Profile, ATiedParameterCountsOnceInAStageThatHoldsBothEnds) {
  Profile profile = three_layers({1});
  profile.tied_bytes = 600;
  EXPECT_EQ(parameter_bytes(profile, {0, 3}), 6000 - 600);
  EXPECT_EQ(parameter_bytes(profile, {0, 2}), 3000);
  EXPECT_EQ(parameter_bytes(profile, {2, 3}), 3000);
}

TEST(Profile, ACutCarriesTheOutputOfTheLayerBeforeIt) {
  const Profile profile = three_layers({1});
  EXPECT_EQ(cut_row_bytes(profile, 1), 8);
  EXPECT_EQ(cut_row_bytes(profile, 2), 9);
}

}  // namespace
}  // namespace skein::plans
