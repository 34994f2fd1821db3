#include "gpu/checkpoint/model_source.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/newest_checkpoint.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/files/mapped_file.hpp"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;

/// So many pieces of a file of weights tell it from one of the same model that was trained on, in
/// which each product has moved.
constexpr uint64_t kPieces = 64;
constexpr uint64_t kPieceBytes = 4096;

/// Its size, its header, and pieces of it from the first to the last byte, equally far apart.
absl::StatusOr<std::string> sample_of(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const std::string_view all(reinterpret_cast<const char*>(file->data()), file->bytes());
  std::string sample = absl::StrCat(all.size(), "\n");
  if (all.size() <= kPieces * kPieceBytes) return sample.append(all);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, all.data(), sizeof(header_bytes));
  sample.append(all.substr(0, std::min(header_bytes, kSafetensorsHeaderMax)));
  const uint64_t last = all.size() - kPieceBytes;
  for (uint64_t piece = 0; piece < kPieces; ++piece) {
    sample.append(all.substr(piece * last / (kPieces - 1), kPieceBytes));
  }
  return sample;
}

}  // namespace

absl::StatusOr<ModelSource> ModelSource::open(
    const std::string& path, const std::function<absl::Status(const ModelSource&)>& read_beside) {
  ModelSource source;
  SKEIN_RETURN_IF_ERROR(read_newest(path, [&](const std::string& folder) -> absl::Status {
    SKEIN_ASSIGN_OR_RETURN(source, open_once(folder));
    return read_beside ? read_beside(source) : absl::OkStatus();
  }));
  return source;
}

absl::StatusOr<ModelSource> ModelSource::open_once(const std::string& path) {
  ModelSource source;
  std::error_code error;
  const fs::path folder(path);
  if (fs::exists(folder / kConfigName, error) && !fs::exists(folder / kCompleteName, error)) {
    SKEIN_ASSIGN_OR_RETURN(source.weights_, WeightsFolder::open(path));
    source.folder_ = path;
    return source;
  }
  auto checkpoint = CheckpointReader::open(path);
  if (absl::IsNotFound(checkpoint.status()) && !complete_checkpoints(path).ok()) {
    return absl::NotFoundError(absl::StrCat(std::string(checkpoint.status().message()),
                                            ", or a model's folder, which has ", kConfigName));
  }
  if (!checkpoint.ok()) return checkpoint.status();
  source.checkpoint_ = *std::move(checkpoint);
  source.folder_ = source.checkpoint_->folder();
  return source;
}

const plans::ModelSpec& ModelSource::model() const {
  return weights_ ? weights_->model() : checkpoint_->model();
}

std::optional<int64_t> ModelSource::trained_seq_len() const {
  if (weights_) return std::nullopt;
  const TrainerState& state = checkpoint_->trainer_state();
  // Before the first step the weights are those that training begins with.
  if (state.steps_done == 0 || state.positions > state.seq_len) return std::nullopt;
  return std::clamp<int64_t>(state.seq_len, 1, model().positions);
}

int64_t ModelSource::positions() const {
  const int64_t learned = weights_ ? 0 : learned_positions(checkpoint_->trainer_state());
  // What has learned nothing yet may be asked all the same.
  return learned > 0 ? std::min(learned, model().positions) : model().positions;
}

absl::StatusOr<uint64_t> ModelSource::digest() const {
  const fs::path folder(folder_);
  std::error_code error;
  std::map<std::string, std::string> said;  // By file, in the order of their names.
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    if (each->path().extension() != ".safetensors") continue;
    std::string& text = said[each->path().filename().string()];
    if (checkpoint_) continue;  // COMPLETE has digests.
    SKEIN_ASSIGN_OR_RETURN(text, sample_of(each->path().string()));
  }
  for (const char* name : {kConfigName, kCompleteName}) {
    if (!fs::exists(folder / name, error)) continue;
    std::ifstream file(folder / name, std::ios::binary);
    std::string& text = said[name];
    text.assign(std::istreambuf_iterator<char>(file), {});
    if (file.bad()) return absl::UnavailableError(absl::StrCat("cannot read ", folder_, "/", name));
  }
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot read ", folder_, ": ", error.message()));
  }
  std::string all;
  for (const auto& [name, text] : said) absl::StrAppend(&all, name, "\n", text, "\n");
  return plans::random_stream(all.data(), all.size());
}

absl::Status ModelSource::read(const std::string& name, std::span<float> out) const {
  return weights_ ? weights_->read(name, out) : checkpoint_->read(name, out);
}

}  // namespace skein::gpu
