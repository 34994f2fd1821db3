#include "cli/spot/spot_source.hpp"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

constexpr int kOk = 200;
constexpr int kUnauthorized = 401;
constexpr size_t kWordBytesMax = 1024;  // A token of AWS has 56 bytes, a name at most 64.

const MetadataRequest kAwsToken = {
    "PUT", "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}}};
const MetadataRequest kGcpPreempted = {
    "GET", "/computeMetadata/v1/instance/preempted", {{"Metadata-Flavor", "Google"}}};
const MetadataRequest kGcpMaintenance = {
    "GET", "/computeMetadata/v1/instance/maintenance-event", {{"Metadata-Flavor", "Google"}}};
const MetadataRequest kAzureName = {
    "GET",
    "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
    {{"Metadata", "true"}}};
const MetadataRequest kAzureEvents = {
    "GET", "/metadata/scheduledevents?api-version=2020-07-01", {{"Metadata", "true"}}};

/// An answer that is one visible word, else "": it goes into a header or a comparison.
std::string word_of(const MetadataAnswer& answer) {
  const std::string word(absl::StripAsciiWhitespace(answer.body));
  const bool is_word = answer.status == kOk && word.size() <= kWordBytesMax &&
                       std::all_of(word.begin(), word.end(), [](char c) {
                         return absl::ascii_isgraph(static_cast<unsigned char>(c));
                       });
  return is_word ? word : "";
}

std::string trouble(const MetadataRequest& request, const MetadataAnswer& answer) {
  const std::string what = answer.status == 0     ? "no answer"
                           : answer.status == kOk ? "an answer that is not this cloud's"
                                                  : absl::StrCat("status ", answer.status);
  return absl::StrCat(what, " to ", request.method, " ", request.path);
}

SpotSource::Round round_of(const MetadataRequest& request, const MetadataAnswer& answer,
                           const SpotReading& reading) {
  return {reading.is_understood ? "" : trouble(request, answer), reading.notice};
}

}  // namespace

std::string cloud_name(Cloud cloud) {
  if (cloud == Cloud::kAws) return "aws";
  return cloud == Cloud::kGcp ? "gcp" : "azure";
}

absl::StatusOr<std::vector<Cloud>> parse_clouds(const std::string& word) {
  const std::vector<Cloud> all = {Cloud::kAws, Cloud::kGcp, Cloud::kAzure};
  if (word == "none") return std::vector<Cloud>();
  if (word == "auto") return all;
  for (Cloud cloud : all) {
    if (word == cloud_name(cloud)) return std::vector<Cloud>{cloud};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--spot is ", word, "; give aws, gcp, azure, auto or none"));
}

SpotSource::Round SpotSource::poll(const AskMetadata& ask, int64_t now_unix_s) {
  if (cloud_ == Cloud::kAws) return poll_aws(ask, now_unix_s);
  return cloud_ == Cloud::kGcp ? poll_gcp(ask) : poll_azure(ask, now_unix_s);
}

SpotSource::Round SpotSource::poll_aws(const AskMetadata& ask, int64_t now_unix_s) {
  MetadataRequest request = {"GET", "/latest/meta-data/spot/instance-action", {}};
  MetadataAnswer answer;
  for (int attempt = 0; attempt < 2; ++attempt) {  // The second: the token had expired.
    if (token_.empty()) {
      const MetadataAnswer given = ask(kAwsToken);
      token_ = word_of(given);
      if (token_.empty()) return {trouble(kAwsToken, given), std::nullopt};
    }
    request.headers = {{"X-aws-ec2-metadata-token", token_}};
    answer = ask(request);
    if (answer.status != kUnauthorized) break;
    token_.clear();
  }
  return round_of(request, answer, read_aws_instance_action(answer, now_unix_s));
}

SpotSource::Round SpotSource::poll_gcp(const AskMetadata& ask) {
  const MetadataAnswer preempted = ask(kGcpPreempted);
  const Round round = round_of(kGcpPreempted, preempted, read_gcp_preempted(preempted));
  if (!round.trouble.empty() || round.notice) return round;
  const MetadataAnswer maintenance = ask(kGcpMaintenance);
  // Without trouble: what matters most was answered, and not every machine has this one.
  return {"", read_gcp_maintenance_event(maintenance).notice};
}

SpotSource::Round SpotSource::poll_azure(const AskMetadata& ask, int64_t now_unix_s) {
  if (vm_name_.empty()) {
    const MetadataAnswer given = ask(kAzureName);
    vm_name_ = word_of(given);
    if (vm_name_.empty()) return {trouble(kAzureName, given), std::nullopt};
  }
  const MetadataAnswer answer = ask(kAzureEvents);
  return round_of(kAzureEvents, answer, read_azure_scheduled_events(answer, vm_name_, now_unix_s));
}

}  // namespace skein::cli
