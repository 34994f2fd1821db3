#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace skein::cli {

/// What the metadata service of a cloud answered.
struct MetadataAnswer {
  int status = 0;  // The status of HTTP; 0: no answer came.
  std::string body;
};

/// The cloud takes this machine back soon.
struct SpotNotice {
  std::string reason;                  // Who takes it, why and when: one line for people.
  std::optional<double> seconds_left;  // >= 0; none if the cloud does not say.
};

struct SpotReading {
  bool is_understood = false;  // False: this is not what the service answers, so we know nothing.
  std::optional<SpotNotice> notice;
};

// What each answer means. Any bytes may come; words of theirs that we do not know are not repeated.
// `now_unix_s`: seconds since 1970, on the clock by which the cloud gives its times.

/// GET /latest/meta-data/spot/instance-action: 404 until the notice is there, about 120 s ahead.
SpotReading read_aws_instance_action(const MetadataAnswer& answer, int64_t now_unix_s);

/// GET /computeMetadata/v1/instance/preempted: FALSE, and TRUE from about 30 s before the end.
SpotReading read_gcp_preempted(const MetadataAnswer& answer);

/// GET /computeMetadata/v1/instance/maintenance-event. A machine that is moved alive goes on, so
/// only termination is a notice; how long it is ahead depends on the machine.
SpotReading read_gcp_maintenance_event(const MetadataAnswer& answer);

/// GET /metadata/scheduledevents. All machines of a scale set see the events of each of them:
/// only Preempt and Terminate of `vm_name` are ours.
SpotReading read_azure_scheduled_events(const MetadataAnswer& answer, const std::string& vm_name,
                                        int64_t now_unix_s);

}  // namespace skein::cli
