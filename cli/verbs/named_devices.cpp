#include "cli/verbs/named_devices.hpp"

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "actors/printing/stderr_lines.hpp"
#include "gpu/cuda/load_cuda.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

using Devices = std::vector<std::unique_ptr<gpu::Device>>;

/// The number of "cuda:3".
std::optional<int32_t> ordinal_of(absl::string_view name) {
  int32_t ordinal = 0;
  const bool is_one = absl::ConsumePrefix(&name, "cuda:") && !name.empty() &&
                      name.find_first_not_of("0123456789") == absl::string_view::npos &&
                      absl::SimpleAtoi(name, &ordinal);
  return is_one ? std::optional(ordinal) : std::nullopt;
}

class Opening {
 public:
  explicit Opening(const DeviceNames& names) : names_(names) {}

  absl::Status add(const std::string& name) {
    if (name == "cpu") return add_host();
    if (name == "cuda") return add_all_gpus(name);
    if (const std::optional<int32_t> ordinal = ordinal_of(name)) return add_gpu(*ordinal, name);
    if (name == "auto") {
      return absl::InvalidArgumentError(absl::StrCat("--devices ", names_.names,
                                                     ": \"auto\" means "
                                                     "all that is there; give it alone"));
    }
    return absl::InvalidArgumentError(absl::StrCat("--devices ", names_.names, ": \"", name,
                                                   "\" is no device; give \"auto\", or \"cpu\", "
                                                   "\"cuda\" and \"cuda:N\", separated by commas"));
  }
  absl::Status add_what_is_there() {
    absl::Status status = add_all_gpus("auto");
    if (!absl::IsFailedPrecondition(status) && !absl::IsResourceExhausted(status)) return status;
    actors::print_error_line(absl::StrCat("skein: ", std::string(status.message()), "; using ",
                                          names_.threads, " threads of the processor"));
    return add_host();
  }
  Devices take() { return std::move(devices_); }

 private:
  absl::Status add_host() {
    return keep(gpu::make_host_device(static_cast<int32_t>(names_.threads)));
  }
  absl::Status add_gpu(int32_t ordinal, const std::string& name) {
    if (!ordinals_.insert(ordinal).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--devices ", names_.names, ": GPU ", ordinal, " is given twice"));
    }
    gpu::CudaOptions options;
    options.ordinal = ordinal;
    options.precision = names_.precision;
    absl::StatusOr<std::unique_ptr<gpu::Device>> made = gpu::load_cuda_device(options);
    if (made.ok()) return keep(*std::move(made));
    if (!absl::IsUnavailable(made.status())) {
      return absl::Status(made.status().code(),
                          absl::StrCat("--devices ", name, ": GPU ", ordinal, ": ",
                                       std::string(made.status().message())));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "--devices ", name, ": no CUDA device: ", std::string(made.status().message())));
  }
  /// All that have room. FailedPrecondition if there is none, ResourceExhausted if all are full.
  absl::Status add_all_gpus(const std::string& name) {
    absl::Status full;
    const size_t before = devices_.size();
    for (int32_t ordinal = 0;; ++ordinal) {
      absl::Status status = add_gpu(ordinal, name);
      if (absl::IsResourceExhausted(status)) full = status;
      if (status.ok() || absl::IsResourceExhausted(status)) continue;
      if (!absl::IsFailedPrecondition(status) || ordinal == 0) return status;
      return devices_.size() > before ? absl::OkStatus() : full;
    }
  }
  absl::Status keep(std::unique_ptr<gpu::Device> device) {
    devices_.push_back(std::move(device));
    if (devices_.size() <= kDevicesMax) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--devices: more than ", kDevicesMax, "; name fewer"));
  }

  const DeviceNames& names_;
  Devices devices_;
  std::set<int32_t> ordinals_;
};

}  // namespace

absl::StatusOr<Devices> open_devices(const DeviceNames& names) {
  Opening opening(names);
  if (names.names == "auto") {
    SKEIN_RETURN_IF_ERROR(opening.add_what_is_there());
    return opening.take();
  }
  const std::vector<std::string> each = absl::StrSplit(names.names, ',');
  for (const std::string& name : each) SKEIN_RETURN_IF_ERROR(opening.add(name));
  return opening.take();
}

}  // namespace skein::cli
