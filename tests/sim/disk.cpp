#include "tests/sim/disk.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/crc32c.hpp"

namespace skein::sim {
namespace {

namespace fs = std::filesystem;

/// An exponent's bit: the number becomes far larger or far smaller.
constexpr unsigned char kFlippedBit = 0x40;
constexpr uint64_t kFloatBytes = 4;

/// Changes one number in the data of a safetensors file.
void flip_float(const std::string& path, plans::Rng& rng) {
  uint64_t at = 0;
  {
    const auto file = gpu::SafetensorsFile::open(path);
    if (!file.ok()) return;
    const auto tensor = std::next((*file)->tensors().begin(),
                                  static_cast<int64_t>(rng.below((*file)->tensors().size())));
    const auto bytes = (*file)->bytes_of(tensor->second);
    at = static_cast<uint64_t>(bytes.data() - (*file)->contents().data()) +
         kFloatBytes * rng.below(bytes.size() / kFloatBytes) + kFloatBytes - 1;
  }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const auto flipped = static_cast<char>(static_cast<unsigned char>(file.get()) ^ kFlippedBit);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(flipped);
}

void renew_digests(const std::string& folder, const std::string& name) {
  auto listing = gpu::read_listing(folder);
  const auto file = gpu::SafetensorsFile::open(absl::StrCat(folder, "/", name));
  if (!listing.ok() || !file.ok()) return;
  (*listing)[name].crc32c = gpu::crc32c((*file)->contents());
  (*listing)[name].tensors = gpu::tensor_digests(**file);
  std::ofstream(absl::StrCat(folder, "/", gpu::kCompleteName)) << gpu::to_json(*listing).dump();
}

}  // namespace

Disk::Disk(std::string run_folder, uint64_t seed, uint64_t write_us_max)
    : run_folder_(std::move(run_folder)),
      rng_(seed, plans::random_stream("disk-times", 10)),
      write_us_max_(write_us_max) {}

void Disk::on_completed(const std::string& folder) {
  damaged_.erase(folder);
  if (damages_next_) damage_checkpoint(*std::exchange(damages_next_, std::nullopt));
}

void Disk::damage_checkpoint(bool keeps_digests) {
  const auto folders = gpu::complete_checkpoints(run_folder_);
  if (!folders.ok() || is_damaged(folders->front())) {
    damages_next_ = keeps_digests;
    return;
  }
  const std::string& folder = folders->front();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename());
  }
  if (names.empty()) return;
  std::sort(names.begin(), names.end());
  const std::string name = names[rng_.below(names.size())];
  flip_float(absl::StrCat(folder, "/", name), rng_);
  if (keeps_digests) renew_digests(folder, name);
  damaged_.insert(folder);
}

bool Disk::has_checkpoint() const { return gpu::complete_checkpoints(run_folder_).ok(); }

bool Disk::has_replaced(const std::string& folder) const {
  if (fs::exists(folder)) return false;
  const auto folders = gpu::complete_checkpoints(run_folder_);
  return folders.ok() && folders->front() > folder;  // Their names sort by step.
}

bool Disk::has_only_damaged() const {
  const auto folders = gpu::complete_checkpoints(run_folder_);
  return folders.ok() && std::all_of(folders->begin(), folders->end(),
                                     [this](const auto& each) { return is_damaged(each); });
}

void Disk::delete_partial() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_folder_ + "/checkpoint", error)) {
    if (entry.path().extension() == ".tmp") fs::remove_all(entry.path(), error);
  }
}

void Disk::on_shard_written(const std::string& folder, const std::set<std::string>& names) {
  if (!std::exchange(loses_shard_, false)) return;
  std::error_code error;
  for (const std::string& name : names) fs::remove(absl::StrCat(folder, "/", name), error);
}

}  // namespace skein::sim
