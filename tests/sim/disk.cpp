#include "tests/sim/disk.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/files/durable_file.hpp"

namespace skein::sim {
namespace {

namespace fs = std::filesystem;

/// An exponent's bit: the number becomes far larger or far smaller.
constexpr unsigned char kFlippedBit = 0x40;
constexpr uint64_t kFloatBytes = 4;
constexpr char kDamagedName[] = "damaged";

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

Disk::~Disk() { make_space(); }

void Disk::on_completed() {
  if (damages_next_) damage_checkpoint(*std::exchange(damages_next_, std::nullopt));
}

void Disk::damage_checkpoint(bool keeps_digests) {
  has_failed_ = true;
  const auto folders = gpu::complete_checkpoints(run_folder_);
  if (!folders.ok() || is_damaged(folders->front())) {
    damages_next_ = keeps_digests;
    return;
  }
  const std::string& folder = folders->front();
  const std::string name = pick_file(folder);
  if (name.empty()) return;
  flip_float(absl::StrCat(folder, "/", name), rng_);
  if (keeps_digests) renew_digests(folder, name);
  mark_damaged(folder);
}

bool Disk::is_damaged(const std::string& folder) const {
  return fs::exists(absl::StrCat(folder, "/", kDamagedName));
}

void Disk::mark_damaged(const std::string& folder) const {
  std::ofstream(absl::StrCat(folder, "/", kDamagedName)) << "by the simulation\n";
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

std::string Disk::pick_file(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names.empty() ? "" : names[rng_.below(names.size())];
}

void Disk::tear(const std::string& path) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  const fs::file_time_type written = fs::last_write_time(path, error);
  if (!error && bytes > 0) fs::resize_file(path, rng_.below(bytes), error);
  fs::last_write_time(path, written, error);  // Nobody seems to be writing it.
}

void Disk::tear_checkpoint() {
  has_failed_ = true;
  const auto folders = gpu::complete_checkpoints(run_folder_);
  if (!folders.ok() || is_damaged(folders->front())) return;
  const std::string name = pick_file(folders->front());
  if (name.empty()) return;
  tear(absl::StrCat(folders->front(), "/", name));
  mark_damaged(folders->front());
}

void Disk::tear_newest() {
  const auto folders = gpu::complete_checkpoints(run_folder_);
  const std::string name = folders.ok() ? pick_file(folders->front()) : "";
  if (!name.empty()) tear(absl::StrCat(folders->front(), "/", name));
}

bool Disk::on_left(const std::vector<std::string>& folders) {
  if (!tears_left_ || folders.empty()) return false;
  tears_left_ = false;
  const std::string& folder = folders[rng_.below(folders.size())];
  const std::string name = pick_file(folder);
  if (name.empty()) return false;
  tear(absl::StrCat(folder, "/", name));
  return true;
}

void Disk::fill(int64_t operations) {
  has_failed_ = is_full_ = was_full_ = true;
  gpu::fail_file_operation(operations + 1);
}

void Disk::make_space() {
  is_full_ = false;
  gpu::fail_file_operation(0);
}

void Disk::on_shard_written(const std::string& folder, const std::set<std::string>& names,
                            bool is_last) {
  if (std::exchange(tears_shard_, false)) {
    tear(absl::StrCat(folder, "/",
                      *std::next(names.begin(), static_cast<int64_t>(rng_.below(names.size())))));
    tore_shard_ = true;
  }
  if (is_last || !std::exchange(loses_shard_, false)) return;
  std::error_code error;
  for (const std::string& name : names) fs::remove(absl::StrCat(folder, "/", name), error);
}

}  // namespace skein::sim
