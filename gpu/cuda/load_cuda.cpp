#include "gpu/cuda/load_cuda.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/cuda/plugin_abi.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

constexpr char kPluginFile[] = "libskein_cuda.so";

/// The folder of the running program, empty if the system does not tell.
std::filesystem::path program_folder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return {};
  return std::filesystem::path(std::string(path, static_cast<size_t>(length))).parent_path();
}

absl::StatusOr<std::string> find_plugin() {
  std::vector<std::string> places;
  if (const char* named = std::getenv("SKEIN_CUDA_PLUGIN"); named != nullptr) {
    places = {named};
  } else {
    const std::filesystem::path folder = program_folder();
    places = {folder / kPluginFile, folder / ".." / "lib" / kPluginFile};
  }
  for (const std::string& place : places) {
    std::error_code ignored;
    if (std::filesystem::exists(place, ignored)) return place;
  }
  return absl::UnavailableError(
      absl::StrCat("there is no plugin at ", absl::StrJoin(places, " or "),
                   "; build it with nvcc at hand, or name it in SKEIN_CUDA_PLUGIN"));
}

/// A function of the loaded plugin, null if it has none of that name.
template <class Function>
Function* function_of(void* plugin, const char* name) {
  return reinterpret_cast<Function*>(dlsym(plugin, name));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> load_cuda_device(const CudaOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const std::string path, find_plugin());
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot load the plugin: ", dlerror()));
  }
  auto* abi = function_of<CudaPluginAbi>(plugin, kCudaPluginAbiName);
  auto* make = function_of<CudaPluginMake>(plugin, kCudaPluginMakeName);
  if (abi == nullptr || make == nullptr || abi() != kCudaPluginAbi) {
    return absl::UnavailableError(
        absl::StrCat(path, " is of another version than this program; build both together"));
  }
  absl::StatusOr<std::unique_ptr<Device>> made = absl::UnknownError("the plugin made nothing");
  make(options, &made);
  return made;
}

}  // namespace skein::gpu
