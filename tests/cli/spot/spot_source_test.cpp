#include "cli/spot/spot_source.hpp"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kToken = "/latest/api/token";
constexpr const char* kAction = "/latest/meta-data/spot/instance-action";
constexpr const char* kPreempted = "/computeMetadata/v1/instance/preempted";
constexpr const char* kMaintenance = "/computeMetadata/v1/instance/maintenance-event";
constexpr const char* kName = "/metadata/instance/compute/name";
constexpr const char* kEvents = "/metadata/scheduledevents";

/// Answers by path, whatever stands behind a "?", and remembers what was asked.
struct FakeService {
  std::map<std::string, MetadataAnswer> answers;
  std::vector<MetadataRequest> asked;

  SpotSource::Round poll(SpotSource& source) {
    asked.clear();
    return source.poll(
        [this](const MetadataRequest& request) {
          asked.push_back(request);
          const auto found = answers.find(request.path.substr(0, request.path.find('?')));
          return found == answers.end() ? MetadataAnswer() : found->second;
        },
        0);
  }
  std::vector<std::string> paths() const {
    std::vector<std::string> paths;
    for (const auto& request : asked)
      paths.push_back(request.path.substr(0, request.path.find('?')));
    return paths;
  }
};

TEST(ParseClouds, KnowsItsWordsOnly) {
  EXPECT_TRUE(parse_clouds("none")->empty());
  const std::vector<Cloud> all = parse_clouds("auto").value();
  EXPECT_EQ(all.size(), 3u);
  for (Cloud cloud : all) {
    EXPECT_EQ(*parse_clouds(cloud_name(cloud)), std::vector<Cloud>{cloud});
  }
  for (const char* word : {"", "AWS", "ec2", "aws,gcp"}) {
    EXPECT_EQ(parse_clouds(word).status().code(), absl::StatusCode::kInvalidArgument) << word;
  }
}

TEST(AwsSource, TakesATokenOnceAndSendsItWithEachQuestion) {
  FakeService service{{{kToken, {200, "secret=="}}, {kAction, {404, ""}}}};
  SpotSource source(Cloud::kAws);
  EXPECT_EQ(service.poll(source).trouble, "");
  EXPECT_THAT(service.paths(), ElementsAre(kToken, kAction));
  EXPECT_EQ(service.asked[0].method, "PUT");
  EXPECT_EQ(service.asked[1].headers[0].second, "secret==");
  EXPECT_EQ(service.poll(source).trouble, "");
  EXPECT_THAT(service.paths(), ElementsAre(kAction));
}

TEST(AwsSource, TakesANewTokenWhenTheOldOneHasExpired) {
  FakeService service{{{kToken, {200, "old"}}, {kAction, {404, ""}}}};
  SpotSource source(Cloud::kAws);
  service.poll(source);
  service.answers[kAction] = {401, ""};
  EXPECT_THAT(service.poll(source).trouble, HasSubstr("status 401"));
  EXPECT_THAT(service.paths(), ElementsAre(kAction, kToken, kAction));  // And no further.
}

TEST(AwsSource, ATokenThatCannotBeAHeaderIsTrouble) {
  for (const std::string& token : {std::string(), std::string("a\r\nX-Evil: 1"),
                                   std::string(5000, 'a'), std::string("\xff")}) {
    FakeService service{{{kToken, {200, token}}, {kAction, {200, R"({"action": "stop"})"}}}};
    SpotSource source(Cloud::kAws);
    const SpotSource::Round round = service.poll(source);
    EXPECT_THAT(round.trouble, HasSubstr(kToken));
    EXPECT_FALSE(round.notice);
  }
}

TEST(GcpSource, EitherQuestionCanBeANotice) {
  FakeService service{{{kPreempted, {200, "FALSE"}}, {kMaintenance, {200, "NONE"}}}};
  SpotSource source(Cloud::kGcp);
  EXPECT_FALSE(service.poll(source).notice);
  EXPECT_EQ(service.asked[0].headers[0].first, "Metadata-Flavor");
  service.answers[kMaintenance] = {200, "TERMINATE_ON_HOST_MAINTENANCE"};
  EXPECT_TRUE(service.poll(source).notice);
  service.answers[kPreempted] = {200, "TRUE"};
  EXPECT_TRUE(service.poll(source).notice);
  EXPECT_THAT(service.paths(), ElementsAre(kPreempted));
}

TEST(GcpSource, AMachineWithoutMaintenanceEventsIsNoTrouble) {
  FakeService service{{{kPreempted, {200, "FALSE"}}, {kMaintenance, {404, ""}}}};
  SpotSource source(Cloud::kGcp);
  EXPECT_EQ(service.poll(source).trouble, "");
}

TEST(AzureSource, AsksOnceForItsNameAndThenForItsEvents) {
  FakeService service{{{kName, {200, "set_3"}}, {kEvents, {200, R"({"Events": []})"}}}};
  SpotSource source(Cloud::kAzure);
  EXPECT_EQ(service.poll(source).trouble, "");
  EXPECT_THAT(service.paths(), ElementsAre(kName, kEvents));
  service.answers[kEvents].body =
      R"({"Events": [{"EventType": "Preempt", "Resources": ["set_3"], "NotBefore": ""}]})";
  EXPECT_TRUE(service.poll(source).notice);
  EXPECT_THAT(service.paths(), ElementsAre(kEvents));
}

TEST(EverySource, SilenceIsTroubleAndNamesTheQuestion) {
  const std::map<Cloud, std::string> first = {
      {Cloud::kAws, kToken}, {Cloud::kGcp, kPreempted}, {Cloud::kAzure, kName}};
  for (const auto& [cloud, path] : first) {
    FakeService service;
    SpotSource source(cloud);
    const SpotSource::Round round = service.poll(source);
    EXPECT_THAT(round.trouble, HasSubstr("no answer"));
    EXPECT_THAT(round.trouble, HasSubstr(path));
    EXPECT_FALSE(round.notice);
    EXPECT_EQ(service.asked.size(), 1u);
  }
}

}  // namespace
}  // namespace skein::cli
