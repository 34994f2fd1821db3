#include "cli/spot/spot_notice.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace skein::cli {
namespace {

constexpr int64_t kNow = 1505722800;  // 2017-09-18T08:20:00Z, which is Mon, 18 Sep 2017.

std::string azure(const std::string& events) {
  return R"({"DocumentIncarnation": 7, "Events": [)" + events + "]}";
}

std::string azure_event(const std::string& type, const std::string& vm, const std::string& state,
                        const std::string& not_before) {
  return R"({"EventId": "A", "EventType": ")" + type +
         R"(", "ResourceType": "VirtualMachine", "Resources": ["other", ")" + vm +
         R"("], "EventStatus": ")" + state + R"(", "NotBefore": ")" + not_before +
         R"(", "EventSource": "Platform", "DurationInSeconds": -1})";
}

TEST(AwsInstanceAction, IsNotThereUntilTheNotice) {
  const SpotReading reading = read_aws_instance_action({404, "<html>Not Found</html>"}, kNow);
  EXPECT_TRUE(reading.is_understood);
  EXPECT_FALSE(reading.notice);
}

TEST(AwsInstanceAction, SaysWhatIsDoneWhen) {
  for (const char* action : {"terminate", "stop", "hibernate"}) {
    const std::string body =
        std::string(R"({"action": ")") + action + R"(", "time": "2017-09-18T08:22:00Z"})";
    const SpotReading reading = read_aws_instance_action({200, body}, kNow);
    ASSERT_TRUE(reading.notice) << action;
    EXPECT_EQ(reading.notice->seconds_left, 120) << action;
    EXPECT_EQ(reading.notice->reason,
              std::string("spot notice: AWS is to ") + action + " this machine in 120 s");
  }
}

TEST(AwsInstanceAction, ATimeThatHasPassedLeavesNoSecondsAndABadOneIsUnknown) {
  const auto read = [](const std::string& time) {
    return read_aws_instance_action({200, R"({"action": "stop", "time": )" + time + "}"}, kNow);
  };
  EXPECT_EQ(read("\"2017-09-18T08:19:00Z\"").notice->seconds_left, 0);
  for (const char* bad : {"\"soon\"", "\"\"", "null", "12", "[]", "\"infinite-future\""}) {
    ASSERT_TRUE(read(bad).notice) << bad;
    EXPECT_FALSE(read(bad).notice->seconds_left) << bad;
  }
}

TEST(AwsInstanceAction, DoesNotRepeatWordsThatItDoesNotKnow) {
  const SpotReading reading =
      read_aws_instance_action({200, R"({"action": "x\n\u001b[31m", "time": "?"})"}, kNow);
  ASSERT_TRUE(reading.notice);
  EXPECT_EQ(reading.notice->reason, "spot notice: AWS interrupts this machine soon");
}

TEST(GcpPreempted, KnowsTwoWords) {
  EXPECT_TRUE(read_gcp_preempted({200, "FALSE"}).is_understood);
  EXPECT_FALSE(read_gcp_preempted({200, "FALSE"}).notice);
  ASSERT_TRUE(read_gcp_preempted({200, "TRUE\n"}).notice);
  EXPECT_EQ(read_gcp_preempted({200, "TRUE"}).notice->seconds_left, 30);
  EXPECT_FALSE(read_gcp_preempted({404, "TRUE"}).is_understood);
}

TEST(GcpMaintenanceEvent, IsANoticeOnlyIfTheMachineEnds) {
  EXPECT_TRUE(read_gcp_maintenance_event({200, "NONE"}).is_understood);
  EXPECT_FALSE(read_gcp_maintenance_event({200, "NONE"}).notice);
  EXPECT_FALSE(read_gcp_maintenance_event({200, "MIGRATE_ON_HOST_MAINTENANCE"}).notice);
  const auto reading = read_gcp_maintenance_event({200, "TERMINATE_ON_HOST_MAINTENANCE"});
  ASSERT_TRUE(reading.notice);
  EXPECT_FALSE(reading.notice->seconds_left);
}

TEST(AzureScheduledEvents, NoneIsNoNotice) {
  const SpotReading reading = read_azure_scheduled_events({200, azure("")}, "vm_0", kNow);
  EXPECT_TRUE(reading.is_understood);
  EXPECT_FALSE(reading.notice);
}

TEST(AzureScheduledEvents, PreemptAndTerminateOfThisMachineAreNotices) {
  for (const char* type : {"Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "preempt"}) {
    const std::string word = type;
    const std::string body =
        azure(azure_event(word, "VM_0", "Scheduled", "Mon, 18 Sep 2017 08:20:30 GMT"));
    const SpotReading reading = read_azure_scheduled_events({200, body}, "vm_0", kNow);
    EXPECT_TRUE(reading.is_understood);
    ASSERT_EQ(reading.notice.has_value(), word == "Preempt" || word == "Terminate") << word;
    if (reading.notice) {
      EXPECT_EQ(reading.notice->seconds_left, 30) << word;
    }
  }
}

TEST(AzureScheduledEvents, OthersOfTheScaleSetAreNotMeant) {
  const std::string other = azure_event("Preempt", "vm_1", "Scheduled", "");
  EXPECT_FALSE(read_azure_scheduled_events({200, azure(other)}, "vm_0", kNow).notice);
  const std::string both = other + "," + azure_event("Preempt", "vm_0", "Scheduled", "");
  EXPECT_TRUE(read_azure_scheduled_events({200, azure(both)}, "vm_0", kNow).notice);
}

TEST(AzureScheduledEvents, TheStateCounts) {
  const auto read = [](const std::string& state) {
    const std::string body = azure(azure_event("Preempt", "vm_0", state, ""));
    return read_azure_scheduled_events({200, body}, "vm_0", kNow);
  };
  EXPECT_EQ(read("Started").notice->seconds_left, 0);
  EXPECT_FALSE(read("Scheduled").notice->seconds_left);
  EXPECT_FALSE(read("Completed").notice);
  EXPECT_FALSE(read("Canceled").notice);
}

TEST(AzureScheduledEvents, EventsOfTheWrongShapeAreSkipped) {
  const std::string good = azure_event("Preempt", "vm_0", "Scheduled", "");
  const std::string bad =
      R"(7, null, [], {"EventType": 7}, {"EventType": "Preempt", "Resources": "vm_0"},
         {"EventType": "Preempt", "Resources": [null, 7]}, )";
  EXPECT_TRUE(read_azure_scheduled_events({200, azure(bad + good)}, "vm_0", kNow).notice);
}

TEST(SpotReadings, GarbageIsNotUnderstoodAndNoNotice) {
  std::vector<std::string> garbage = {"",
                                      " ",
                                      "null",
                                      "7",
                                      "[]",
                                      "{}",
                                      "TRUEST",
                                      "true",
                                      "<html>TRUE</html>",
                                      "\"",
                                      "{\"Events\": {}}",
                                      "{\"action\": 3}",
                                      "\xff\xfe",
                                      std::string(1, '\0'),
                                      std::string(60000, '['),
                                      std::string(60000, '{')};
  for (const std::string& body : garbage) {
    for (int status : {0, 200, 301, 400, 401, 403, 410, 500, 503}) {
      const MetadataAnswer answer = {status, body};
      for (const SpotReading& reading :
           {read_aws_instance_action(answer, kNow), read_gcp_preempted(answer),
            read_gcp_maintenance_event(answer),
            read_azure_scheduled_events(answer, "vm_0", kNow)}) {
        EXPECT_FALSE(reading.is_understood) << status << " " << body.substr(0, 40);
        EXPECT_FALSE(reading.notice) << status << " " << body.substr(0, 40);
      }
    }
  }
}

TEST(SpotReadings, EveryCutOfAnAnswerIsReadWithoutHarm) {
  const std::string aws = R"({"action": "stop", "time": "2017-09-18T08:22:00Z"})";
  for (size_t bytes = 0; bytes < aws.size(); ++bytes) {
    EXPECT_FALSE(read_aws_instance_action({200, aws.substr(0, bytes)}, kNow).is_understood);
  }
  const std::string whole = azure(azure_event("Preempt", "vm_0", "Scheduled", ""));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const MetadataAnswer answer = {200, whole.substr(0, bytes)};
    EXPECT_FALSE(read_azure_scheduled_events(answer, "vm_0", kNow).is_understood);
  }
}

}  // namespace
}  // namespace skein::cli
