#pragma once

#include <cstdint>
#include <string>

namespace skein::bench {

/// Plans the models whose measured layers were published with PipeDream (SOSP'19; repository
/// msr-fiddle/pipedream, profiler/*/profiles/*/graph.txt) on clusters of 4 to 64 devices, of one
/// speed and of two, with every planner, and prints one table; then the answers of PipeDream's own
/// optimizer for eight devices beside those of our form of it.
///
/// `folder`   has vgg16.json, alexnet.json, resnet50.json and gnmt.json in the form of
///            docs/profile.md, where a layer is the difference of two neighbouring states of the
///            graph.
/// `devices`  the most; the larger clusters take most of the time, which the others' searches take
/// Returns    the program's exit code: 1 if a file cannot be read, or ours is slower anywhere.
int judge_published_profiles(const std::string& folder, int32_t devices);

}  // namespace skein::bench
