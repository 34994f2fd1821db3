#include "bench/gpu/nccl_groups/rank_program.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "bench/gpu/nccl_groups/work.hpp"
#include "gpu/cuda/load_cuda.hpp"
#include "gpu/device_group.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::bench {
namespace {

using gpu::DeviceGroup;
using Answer = absl::StatusOr<std::string>;

/// Longer than anything should take, on one GPU shared by all ranks.
constexpr double kTimeoutSeconds = 15;

/// A number from /proc/self/status; -1 if it is not there.
int64_t status_number(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    int64_t number = -1;
    if (word == name + ":" && file >> number) return number;
  }
  return -1;
}

/// Bytes of the GPU's memory that are in use by whomever; -1 without a driver.
int64_t gpu_used_mb() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return -1;
  using MemGetInfo = int(size_t*, size_t*);
  auto* ask = reinterpret_cast<MemGetInfo*>(dlsym(driver, "cuMemGetInfo_v2"));
  size_t free = 0, total = 0;
  if (ask == nullptr || ask(&free, &total) != 0) return -1;
  return static_cast<int64_t>((total - free) >> 20);
}

/// The signals of the groups, which the reading thread raises.
class Signals {
 public:
  void put(const std::string& group, std::shared_ptr<gpu::AbortSignal> signal) {
    std::lock_guard lock(mutex_);
    signals_[group] = std::move(signal);
  }
  void raise(const std::string& group) {
    std::lock_guard lock(mutex_);
    const auto found = signals_.find(group);
    if (found != signals_.end()) found->second->raise();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<gpu::AbortSignal>> signals_;
};

class RankWorker {
 public:
  RankWorker(gpu::Device& device, gpu::DeviceGroups& groups, gpu::Buffer gradient, Signals& signals)
      : device_(device),
        library_(groups),
        gradient_(std::move(gradient)),
        signals_(signals),
        weights_(static_cast<size_t>(gradient_.bytes()) / sizeof(float)) {}

  Answer answer(const std::string& line) {
    std::istringstream in(line);
    std::string command, group;
    in >> command;
    if (command == "id") {
      SKEIN_ASSIGN_OR_RETURN(const std::string id, library_.make_id());
      return absl::BytesToHexString(id);
    }
    if (command == "apply") return apply();
    if (command == "count") return count();
    in >> group;
    if (command == "form") return form(group, in);
    const auto found = groups_.find(group);
    if (found == groups_.end()) {
      return absl::NotFoundError(absl::StrCat("there is no group for: ", line));
    }
    DeviceGroup& members = *found->second;
    if (command == "split") return split(members, in);
    if (command == "shrink") return shrink(members, in);
    if (command == "revoke") return plain(members.revoke());
    if (command == "reduce" || command == "die") return reduce(members, command == "die", in);
    if (command == "close") SKEIN_RETURN_IF_ERROR(members.close());
    if (command != "close" && command != "drop") {
      return absl::InvalidArgumentError(absl::StrCat("what is: ", line));
    }
    groups_.erase(found);
    return "";
  }

 private:
  static Answer plain(const absl::Status& status) {
    if (!status.ok()) return status;
    return "";
  }

  DeviceGroup::Options options(const std::string& name) {
    DeviceGroup::Options options;
    options.name = name;
    options.form_timeout_seconds = options.operation_timeout_seconds = kTimeoutSeconds;
    options.on_failure = DeviceGroup::OnFailure::kKeep;
    signals_.put(name, options.abort);
    return options;
  }

  Answer form(const std::string& name, std::istream& in) {
    int32_t rank = 0, count = 0;
    std::string id;
    in >> rank >> count >> id;
    SKEIN_ASSIGN_OR_RETURN(groups_[name],
                           library_.form(absl::HexStringToBytes(id), rank, count, options(name)));
    return "";
  }

  Answer split(DeviceGroup& parent, std::istream& in) {
    int32_t color = 0;
    std::string name;
    in >> color >> name;
    SKEIN_ASSIGN_OR_RETURN(auto part, parent.split(color, options(name)));
    if (part) groups_[name] = std::move(part);
    return "";
  }

  Answer shrink(DeviceGroup& parent, std::istream& in) {
    std::string how, name;
    in >> how >> name;
    std::vector<int32_t> left;
    for (int32_t rank = 0; in >> rank;) left.push_back(rank);
    SKEIN_ASSIGN_OR_RETURN(
        groups_[name],
        parent.shrink(
            left, how == "lost" ? DeviceGroup::Shrink::kAfterLoss : DeviceGroup::Shrink::kHealthy,
            options(name)));
    return "";
  }

  Answer reduce(DeviceGroup& members, bool dies, std::istream& in) {
    int64_t step = 0, first = 0, count = 0;
    in >> step >> first >> count;
    std::vector<float> values(weights_.size());
    add_gradients(step, first, count, values);
    SKEIN_RETURN_IF_ERROR(device_.upload(values, gradient_.floats()));
    SKEIN_RETURN_IF_ERROR(members.all_reduce_sum(gradient_.floats(),
                                                 static_cast<int64_t>(values.size()),
                                                 DeviceGroup::Start::kBehindCompute));
    if (dies) kill(getpid(), SIGKILL);
    SKEIN_RETURN_IF_ERROR(members.wait());
    SKEIN_RETURN_IF_ERROR(members.order_compute_behind());
    SKEIN_RETURN_IF_ERROR(device_.download(gradient_.floats(), values));
    return absl::StrCat(digest(values));
  }

  Answer apply() {
    std::vector<float> values(weights_.size());
    SKEIN_RETURN_IF_ERROR(device_.download(gradient_.floats(), values));
    for (size_t i = 0; i < values.size(); ++i) weights_[i] += values[i];
    return absl::StrCat(digest(weights_));
  }

  static Answer count() {
    int64_t descriptors = -1;  // The one that lists them.
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
      (void)each;
      ++descriptors;
    }
    return absl::StrCat(status_number("VmRSS"), " ", status_number("Threads"), " ", descriptors,
                        " ", gpu_used_mb());
  }

  gpu::Device& device_;
  gpu::DeviceGroups& library_;
  gpu::Buffer gradient_;
  Signals& signals_;
  std::vector<float> weights_;
  std::map<std::string, std::unique_ptr<DeviceGroup>> groups_;
};

/// Lines from the reading thread to the working one.
class Lines {
 public:
  void push(std::string line) {
    std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_one();
  }
  std::string pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !lines_.empty(); });
    std::string line = std::move(lines_.front());
    lines_.pop_front();
    return line;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
};

absl::Status serve(int64_t floats) {
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<gpu::Device> device, gpu::load_cuda_device({}));
  SKEIN_ASSIGN_OR_RETURN(gpu::DeviceGroups * groups, device->groups());
  SKEIN_ASSIGN_OR_RETURN(gpu::Buffer gradient,
                         device->allocate(floats * static_cast<int64_t>(sizeof(float))));
  const gpu::DeviceGroups::Info& info = groups->info();
  std::cout << "ready " << info.library << (info.can_split ? " split" : "")
            << (info.can_shrink ? " shrink" : "") << (info.can_revoke ? " revoke" : "")
            << std::endl;
  Signals signals;
  Lines lines;
  std::thread reader([&] {
    for (std::string line; std::getline(std::cin, line);) {
      if (line.starts_with("stop ")) {
        signals.raise(line.substr(5));
      } else {
        lines.push(line);
      }
    }
    lines.push("quit");
  });
  RankWorker worker(*device, *groups, std::move(gradient), signals);
  for (std::string line = lines.pop(); line != "quit"; line = lines.pop()) {
    const Answer answer = worker.answer(line);
    std::cout << (answer.ok() ? absl::StrCat("ok ", *answer)
                              : absl::StrCat("error ", std::string(answer.status().message())))
              << std::endl;
  }
  reader.join();
  return absl::OkStatus();
}

}  // namespace

int run_rank(int64_t floats) {
  const absl::Status status = serve(floats);
  if (!status.ok()) std::cout << "none " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}

}  // namespace skein::bench
