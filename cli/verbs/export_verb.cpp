#include "cli/verbs/export_verb.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/config/json_text.hpp"
#include "cli/report/number_text.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/model_config.hpp"
#include "gpu/checkpoint/model_source.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/checkpoint/text_files.hpp"
#include "gpu/checkpoint/weights_folder.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMegabyte = 1'000'000;

int64_t bytes_of(const plans::ParameterSpec& spec) {
  return plans::element_count(spec) * static_cast<int64_t>(sizeof(float));
}

/// Parameters that go into one file each; a larger one has a file of its own.
std::vector<std::vector<plans::ParameterSpec>> cut(const plans::ModelSpec& model,
                                                   int64_t bytes_max) {
  std::vector<std::vector<plans::ParameterSpec>> files(1);
  int64_t bytes = 0;
  for (const auto& spec : plans::range_parameters(model, {0, plans::layer_count(model)})) {
    if (!files.back().empty() && bytes + bytes_of(spec) > bytes_max) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(spec);
    bytes += bytes_of(spec);
  }
  return files;
}

absl::Status check(Signals& signals) {
  if (signals.wait(0) == 0) return absl::OkStatus();
  return absl::CancelledError("stopped by a signal: nothing is written");
}

absl::Status write_file(const gpu::ModelSource& source,
                        const std::vector<plans::ParameterSpec>& specs, Signals& signals,
                        const std::string& path) {
  std::vector<std::vector<float>> values;
  std::vector<gpu::TensorToWrite> tensors;
  for (const plans::ParameterSpec& spec : specs) {
    SKEIN_RETURN_IF_ERROR(check(signals));
    values.emplace_back(static_cast<size_t>(plans::element_count(spec)));
    SKEIN_RETURN_IF_ERROR(source.read(spec.name, values.back()));
    SKEIN_RETURN_IF_ERROR(gpu::check_finite_values(source.folder(), spec.name, values.back()));
  }
  for (size_t n = 0; n < specs.size(); ++n) {
    tensors.push_back({specs[n].name, specs[n].shape, values[n]});
  }
  return gpu::write_safetensors(path, tensors).status();
}

absl::Status write_all(const gpu::ModelSource& source, const std::vector<gpu::TextFile>& text_files,
                       int64_t bytes_max, Signals& signals, const std::string& folder) {
  const auto files = cut(source.model(), bytes_max);
  const auto count = static_cast<int>(files.size());
  Json index;
  int64_t total = 0;
  for (int n = 0; n < count; ++n) {
    const auto& specs = files[static_cast<size_t>(n)];
    const std::string name = count == 1 ? "model.safetensors" : gpu::shard_name("model", n, count);
    SKEIN_RETURN_IF_ERROR(write_file(source, specs, signals, absl::StrCat(folder, "/", name)));
    for (const plans::ParameterSpec& spec : specs) {
      index["weight_map"][spec.name] = name;
      total += bytes_of(spec);
    }
  }
  index["metadata"]["total_size"] = total;
  if (count > 1) {
    SKEIN_RETURN_IF_ERROR(gpu::write_durably(absl::StrCat(folder, "/", gpu::kModelIndexName),
                                             json_text(index, 2) + "\n"));
  }
  for (const gpu::TextFile& file : text_files) {
    SKEIN_RETURN_IF_ERROR(gpu::write_durably(absl::StrCat(folder, "/", file.name), file.contents));
  }
  return gpu::write_durably(absl::StrCat(folder, "/", gpu::kConfigName),
                            json_text(gpu::to_config(source.model()), 2) + "\n");
}

}  // namespace

absl::Status export_model(const ExportOptions& options, Signals& signals, std::ostream& out) {
  if (options.shard_mb < 1) return absl::InvalidArgumentError("--shard-mb must be at least 1");
  if (options.out.empty()) return absl::InvalidArgumentError("the folder to write has no name");
  fs::path target = fs::path(options.out).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "out/" is "out".
  std::error_code error;
  if (fs::exists(target, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.out, " is there already; name another folder, or remove it"));
  }
  std::vector<gpu::TextFile> text_files;
  const auto read_beside = [&](const gpu::ModelSource& opened) -> absl::Status {
    SKEIN_RETURN_IF_ERROR(gpu::check_tokenizer(opened.folder()));
    SKEIN_ASSIGN_OR_RETURN(text_files, gpu::find_text_files({opened.folder()}));
    return absl::OkStatus();
  };
  SKEIN_ASSIGN_OR_RETURN(const gpu::ModelSource source,
                         gpu::ModelSource::open(options.checkpoint, read_beside));
  const std::string partial = absl::StrCat(target.string(), ".", getpid(), ".tmp");
  fs::create_directories(partial, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot make ", partial, ": ", error.message()));
  }
  absl::Status status =
      write_all(source, text_files, options.shard_mb * kMegabyte, signals, partial);
  if (status.ok()) status = check(signals);
  if (status.ok() && std::rename(partial.c_str(), target.c_str()) != 0) {
    status = absl::UnavailableError(
        absl::StrCat("cannot rename ", partial, " to ", options.out, ": ", strerror(errno)));
  }
  if (!status.ok()) {
    fs::remove_all(partial, error);
    return status;
  }
  const fs::path parent = target.parent_path();
  SKEIN_RETURN_IF_ERROR(gpu::sync_folder(parent.empty() ? "." : parent.string()));
  out << options.out << ": "
      << with_commas(static_cast<uint64_t>(plans::parameter_count(source.model())))
      << " parameters of " << source.folder() << std::endl;
  return absl::OkStatus();
}

}  // namespace skein::cli
