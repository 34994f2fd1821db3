#include "actors/collectives/gradient_path.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::actors {
namespace {

using testing::HasSubstr;

PathEntry gpu_at(const std::string& place, const std::string& library = "nccl 2.28.9") {
  return {library, place, true, {}};
}
const PathEntry kHost{"", "a device of kind 'cpu x1' has no groups of its own", false, {}};

TEST(GradientPath, GpusOfOneLibraryAddUpAmongThemselves) {
  for (const char* backend : {"auto", "nccl"}) {
    EXPECT_EQ(*choose_gradient_path(backend, {gpu_at("a/0"), gpu_at("a/1"), gpu_at("b/0")}),
              (GradientPath{true, ""}));
  }
}

TEST(GradientPath, WhatStandsInTheWayIsNamedAndOnlyNcclInsists) {
  const std::vector<std::pair<std::vector<PathEntry>, std::string>> cases = {
      {{gpu_at("a/0"), kHost}, "member 1: a device of kind 'cpu x1'"},
      {{gpu_at("a/0"), gpu_at("b/0", "nccl 2.27.3")},
       "member 1 has nccl 2.27.3, member 0 has nccl 2.28"},
      {{gpu_at("a/0"), gpu_at("b/0"), gpu_at("a/0")}, "members 0 and 2 share the GPU a/0"},
      {{{"", "cannot load NCCL", true, {}}, gpu_at("a/0")}, "member 0: cannot load NCCL"},
  };
  for (const auto& [entries, words] : cases) {
    const auto path = choose_gradient_path("auto", entries);
    EXPECT_FALSE(path->on_device);
    EXPECT_THAT(path->reason, HasSubstr(words));
    const absl::Status refusal = choose_gradient_path("nccl", entries).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refusal)) << refusal;
    EXPECT_THAT(std::string(refusal.message()), HasSubstr(words));
    EXPECT_EQ(*choose_gradient_path("gloo", entries), GradientPath{});
  }
}

TEST(GradientPath, HostsAmongThemselvesHaveNothingToSay) {
  EXPECT_EQ(*choose_gradient_path("auto", {kHost, kHost}), GradientPath{});
  EXPECT_FALSE(choose_gradient_path("nccl", {kHost, kHost}).ok());
}

TEST(GradientPath, EntriesSurviveTheirText) {
  PathEntry entry = gpu_at("a/0");
  entry.offer.groups = {{65537, 1, 2, 40}};
  EXPECT_EQ(*parse_path_entry(to_text(entry)), entry);
  EXPECT_EQ(*parse_path_entry(to_text(kHost)), kHost);
  entry.activations = gpu::NumberType::kBfloat16;
  EXPECT_EQ(*parse_path_entry(to_text(entry)), entry);
  entry.detail = "two\nlines";
  EXPECT_EQ(parse_path_entry(to_text(entry))->detail, "two lines");
}

TEST(GradientPath, DecisionsSurviveTheirText) {
  GroupDecision decision;
  EXPECT_EQ(*parse_group_decision(to_text(decision)), decision);
  decision.path = {true, "a reason"};
  decision.activations = gpu::NumberType::kBfloat16;
  decision.formation = {plans::FormationKind::kShrink, 7, true, {{2, 3}}};
  decision.kept = {4, 9};
  EXPECT_EQ(*parse_group_decision(to_text(decision)), decision);
  decision.path.on_device = false;
  decision.is_refused = true;
  EXPECT_EQ(*parse_group_decision(to_text(decision)), decision);
}

TEST(GradientPath, WhatIsNoDecisionIsRefused) {
  std::string many = "device\n\nfloat32\n3 0 0\n1";
  for (size_t number = 2; number <= plans::kKeptMax + 1; ++number)
    many += " " + std::to_string(number);
  for (const std::string& text :
       {std::string(), std::string("device\n\nfloat32\n3 0 0"), many,
        std::string("gpu\n\nfloat32\n3 0 0\n"), std::string("device\n\nfloat64\n3 0 0\n"),
        std::string("device\n\nfloat32\n5 0 0\n"), std::string("hosts\n\nfloat32\n3 0 0\nx")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(parse_group_decision(text).status())) << text;
  }
}

TEST(GradientPath, ActivationsPassOnAsBfloat16IfAllMembersHaveThem) {
  PathEntry rounds = gpu_at("a/0"), also = gpu_at("a/1");
  rounds.activations = also.activations = gpu::NumberType::kBfloat16;
  EXPECT_EQ(passed_on_type({rounds, also}), gpu::NumberType::kBfloat16);
  EXPECT_EQ(passed_on_type({rounds, gpu_at("a/2")}), gpu::NumberType::kFloat32);
}

TEST(GradientPath, WhatIsNoEntryIsRefused) {
  for (const char* text : {"", "a\nb", "a\nb\ngpu", "a\nb\ncow\n11", "a\nb\ngpu\nxx"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(parse_path_entry(text).status())) << text;
  }
}

}  // namespace
}  // namespace skein::actors
