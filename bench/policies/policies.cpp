// Real training under every synchronisation policy, in simulated time: the policy simulation says
// when each column computes, waits and combines, and the mathematics is done at these events. So
// times to a target are exact and repeatable, whatever else the machine does.
//   policies [--pilot] [--threads N] [--csv FILE] [--columns N --stages S]
//            [--fashion-mnist FOLDER | --digits FOLDER]
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "bench/policies/comparison.hpp"
#include "bench/policies/labelled_data.hpp"
#include "bench/policies/mlp_task.hpp"

namespace skein::bench {
namespace {

constexpr uint64_t kHidden = 32;
constexpr uint64_t kTeacherSeed = 7;
constexpr uint64_t kFashionTraining = 6000;  // Of 60,000, so that a table takes minutes.
constexpr uint64_t kDigitsTraining = 1800;   // All.

using Arguments = std::map<std::string, std::string>;

/// "--name value" or "--name"; the last of a name counts.
Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc && std::string(argv[i + 1]).rfind("--", 0) != 0;
    arguments[name] = has_value ? argv[++i] : "";
  }
  return arguments;
}

absl::StatusOr<LabelledData> open_data(const Arguments& arguments) {
  if (const auto folder = arguments.find("--fashion-mnist"); folder != arguments.end()) {
    return read_labelled(folder->second, "Fashion-MNIST", kFashionTraining);
  }
  if (const auto folder = arguments.find("--digits"); folder != arguments.end()) {
    return read_labelled(folder->second, "8x8 digits", kDigitsTraining);
  }
  return make_teacher_data(kTeacherSeed);
}

int run(const Arguments& arguments) {
  const absl::StatusOr<LabelledData> data = open_data(arguments);
  if (!data.ok()) {
    std::fprintf(stderr, "%s\n", data.status().ToString().c_str());
    return 1;
  }
  const auto number = [&](const char* name, uint32_t otherwise) {
    const auto found = arguments.find(name);
    return found == arguments.end() ? otherwise
                                    : static_cast<uint32_t>(std::atoi(found->second.c_str()));
  };
  ComparisonOptions options;
  options.layout = {number("--columns", 8), number("--stages", 1)};
  options.policies = compared_policies();
  options.threads = number("--threads", 2);
  options.lr_grid = {0.025, 0.05, 0.1, 0.2, 0.4};
  options.target_loss = 0.3;
  options.duration_us = 60e6;
  const TaskMaker make_task = [&] {
    return std::make_unique<MlpTask>(*data, options.layout.stages, kHidden);
  };
  std::printf("%s; %u columns of %u stages\n", make_task()->description().c_str(),
              options.layout.columns, options.layout.stages);
  if (arguments.contains("--pilot")) {
    options.scenarios = {number("--scenario", 0)};
    print_ceilings(make_task, options);
    return 0;
  }
  const std::vector<ComparisonRow> rows = compare(make_task, options);
  print_rows(rows, options);
  if (const auto path = arguments.find("--csv"); path != arguments.end()) {
    std::FILE* file = std::fopen(path->second.c_str(), "w");
    if (file == nullptr) return 1;
    write_csv(rows, file);
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) { return skein::bench::run(skein::bench::parse(argc, argv)); }
