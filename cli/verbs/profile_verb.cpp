#include "cli/verbs/profile_verb.hpp"

#include <cstdio>

#include "absl/strings/str_format.h"
#include "cli/config/cluster_file.hpp"
#include "cli/config/profile_file.hpp"
#include "cli/run/exit_codes.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

void print_layers(const plans::Profile& profile) {
  std::printf("%-20s %6s %12s %12s %12s %10s %10s\n", "layer", "rows", "forward us", "input us",
              "weight us", "stash kB", "weights kB");
  for (size_t l = 0; l < profile.layers.size(); ++l) {
    const plans::LayerProfile& layer = profile.layers[l];
    // Blocks are alike and measured once: one entry speaks for all.
    size_t last = l;
    while (last + 1 < profile.layers.size() && profile.layers[last + 1].at == layer.at) ++last;
    const std::string name =
        last == l ? layer.name : absl::StrFormat("%s, and %d more", layer.name, last - l);
    l = last;
    for (size_t i = 0; i < profile.rows.size(); ++i) {
      const plans::LayerTimes& times = layer.at[i];
      const auto stash = static_cast<double>(layer.stash_row_bytes * profile.rows[i]) / 1e3;
      std::printf("%-20s %6lld %12.1f %12.1f %12.1f %10.1f %10.1f\n", i == 0 ? name.c_str() : "",
                  static_cast<long long>(profile.rows[i]), times.forward_us,
                  times.backward_input_us, times.backward_weight_us, stash,
                  static_cast<double>(layer.parameter_bytes) / 1e3);
    }
  }
}

void print_cluster(const plans::ClusterSpec& cluster) {
  std::printf("\n%-36s %-12s %6s %10s\n", "device", "host", "speed", "memory GB");
  for (const plans::ClusterDevice& device : cluster.devices) {
    std::printf("%-36s %-12s %6.2f %10.1f\n", device.name.c_str(),
                cluster.hosts[static_cast<size_t>(device.host)].name.c_str(), device.speed,
                static_cast<double>(device.memory_bytes) / 1e9);
  }
  for (size_t a = 0; a < cluster.devices.size(); ++a) {
    for (size_t b = a + 1; b < cluster.devices.size(); ++b) {
      const plans::LinkSpeed speed =
          plans::path_speed(cluster, static_cast<int32_t>(a), static_cast<int32_t>(b));
      std::printf("w%zu - w%zu  %.2f GB/s, %.0f us\n", a + 1, b + 1, speed.bytes_per_second / 1e9,
                  speed.latency_us);
    }
  }
}

absl::Status report(const RunFolder& folder, const ProfileOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const plans::Profile profile, load_profile(folder.file("profile.json")));
  SKEIN_ASSIGN_OR_RETURN(const plans::ClusterSpec cluster,
                         load_cluster(folder.file("cluster.toml")));
  print_layers(profile);
  print_cluster(cluster);
  SKEIN_RETURN_IF_ERROR(save_profile(options.profile_out, profile));
  SKEIN_RETURN_IF_ERROR(gpu::write_durably(options.cluster_out, to_toml(cluster)));
  std::printf("\nwrote %s and %s; next: skein plan JOB %s --profile %s\n",
              options.profile_out.c_str(), options.cluster_out.c_str(), options.cluster_out.c_str(),
              options.profile_out.c_str());
  return absl::OkStatus();
}

}  // namespace

int profile(const ProfileOptions& options, Signals& signals) {
  TrainOptions training = options.training;
  training.only_profiles = true;
  training.quiet = true;
  training.on_profiled = [&](const RunFolder& folder) { return report(folder, options); };
  return train(training, signals);
}

}  // namespace skein::cli
