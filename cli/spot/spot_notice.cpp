#include "cli/spot/spot_notice.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/config/json_text.hpp"

namespace skein::cli {
namespace {

constexpr int kOk = 200;
constexpr int kNotFound = 404;
constexpr double kGcpLeadSeconds = 30;  // Promised by the documentation of Spot VMs.

std::string trimmed(const std::string& text) {
  return std::string(absl::StripAsciiWhitespace(text));
}

/// Seconds until a time as AWS ("2017-09-18T08:22:00Z") or Azure ("Mon, 19 Sep 2016 18:29:47 GMT")
/// writes it; 0 if it has passed.
std::optional<double> seconds_until(const std::string& text, int64_t now_unix_s) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error) &&
      !absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", text, &time, &error)) {
    return std::nullopt;
  }
  if (time == absl::InfiniteFuture() || time == absl::InfinitePast()) return std::nullopt;
  return std::max(0.0, absl::ToDoubleSeconds(time - absl::FromUnixSeconds(now_unix_s)));
}

SpotNotice notice(const std::string& what, std::optional<double> seconds_left) {
  const std::string when =
      seconds_left ? absl::StrCat(" in ", std::llround(*seconds_left), " s") : " soon";
  return {absl::StrCat("spot notice: ", what, when), seconds_left};
}

bool names(const Json& event, const std::string& vm_name) {
  const auto resources = event.find("Resources");
  if (resources == event.end() || !resources->is_array()) return false;
  return std::any_of(resources->begin(), resources->end(), [&](const Json& resource) {
    // Azure's names do not differ by case alone.
    return resource.is_string() &&
           absl::EqualsIgnoreCase(resource.get_ref<const std::string&>(), vm_name);
  });
}

std::optional<SpotNotice> read_azure_event(const Json& event, const std::string& vm_name,
                                           int64_t now_unix_s) {
  const std::string type = text_at(event, "EventType");
  if ((type != "Preempt" && type != "Terminate") || !names(event, vm_name)) return std::nullopt;
  const std::string state = text_at(event, "EventStatus");
  if (state == "Completed" || state == "Canceled") return std::nullopt;
  const std::string what =
      type == "Preempt" ? "Azure evicts this machine" : "Azure deletes this machine";
  if (state == "Started") return notice(what, 0);  // It has no time then.
  return notice(what, seconds_until(text_at(event, "NotBefore"), now_unix_s));
}

}  // namespace

SpotReading read_aws_instance_action(const MetadataAnswer& answer, int64_t now_unix_s) {
  if (answer.status == kNotFound) return {true, std::nullopt};
  if (answer.status != kOk) return {};
  const Json json = parse_json(answer.body);
  const std::string action = text_at(json, "action");
  if (action.empty()) return {};
  std::string what = "AWS interrupts this machine";
  for (const char* known : {"terminate", "stop", "hibernate"}) {
    if (action == known) what = absl::StrCat("AWS is to ", known, " this machine");
  }
  return {true, notice(what, seconds_until(text_at(json, "time"), now_unix_s))};
}

SpotReading read_gcp_preempted(const MetadataAnswer& answer) {
  const std::string word = answer.status == kOk ? trimmed(answer.body) : "";
  if (word == "FALSE") return {true, std::nullopt};
  if (word == "TRUE") return {true, notice("GCP preempts this machine", kGcpLeadSeconds)};
  return {};
}

SpotReading read_gcp_maintenance_event(const MetadataAnswer& answer) {
  const std::string word = answer.status == kOk ? trimmed(answer.body) : "";
  if (word == "NONE" || word == "MIGRATE_ON_HOST_MAINTENANCE") return {true, std::nullopt};
  if (word == "TERMINATE_ON_HOST_MAINTENANCE") {
    return {true, notice("GCP terminates this machine for maintenance", std::nullopt)};
  }
  return {};
}

SpotReading read_azure_scheduled_events(const MetadataAnswer& answer, const std::string& vm_name,
                                        int64_t now_unix_s) {
  if (answer.status != kOk) return {};
  const Json json = parse_json(answer.body);
  if (!json.is_object()) return {};
  const auto events = json.find("Events");
  if (events == json.end() || !events->is_array()) return {};
  for (const Json& event : *events) {
    if (!event.is_object()) continue;
    if (auto found = read_azure_event(event, vm_name, now_unix_s)) return {true, found};
  }
  return {true, std::nullopt};
}

}  // namespace skein::cli
