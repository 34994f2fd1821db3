#include "tests/sim/cut_short.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gpu/files/durable_file.hpp"
#include "plans/base/check.hpp"

namespace skein::sim {
namespace {

namespace fs = std::filesystem;

/// As long as `gpu::is_state_being_left` counts on whoever has begun to write.
constexpr uint64_t kWriterLivesUs = 20'000'000;

}  // namespace

bool CutShort::arm(Order order, Victim victim) {
  if (order_) return false;
  order_ = std::move(order);
  victim_ = std::move(victim);
  gpu::watch_file_operations(
      [this](const std::string& path, const char* what) { on_operation(path, what); });
  return true;
}

void CutShort::disarm() {
  if (!order_) return;
  order_.reset();
  gpu::watch_file_operations(nullptr);
  if (!has_struck_) forget_images();
}

void CutShort::on_operation(const std::string& path, const std::string& what) {
  if (!order_ || has_struck_ || !absl::StartsWith(path, folder_)) return;
  const ProcessId process = world_.running();
  // Whoever is none is the coordinator that is being started. The dead write nothing.
  const bool is_coordinator = process == 0 || victim_.is_coordinator(process);
  if (is_coordinator != order_->at_coordinator || !world_.is_alive(process)) return;
  const bool is_place =
      (order_->what.empty() || order_->what == what) && absl::StrContains(path, order_->path_part);
  const bool strikes = is_place && --order_->count == 0;
  if (order_->loses_unsynced) {
    if (images_.empty()) world_.after_this([this] { forget_images(); });
    if (std::exchange(was_synced_, what == "sync" && fs::is_directory(path))) forget_images();
  }
  if (order_->loses_unsynced || strikes) images_.push_back(make_image());
  if (!strikes) return;
  world_.trace("cut short before a ", what, " of ", path);
  has_struck_ = true;
  if (process != 0) world_.after_this([this, process] { strike(process); });
}

void CutShort::strike(ProcessId process) {
  victim_.die(process);
  end_strike();
}

void CutShort::end_strike() {
  const size_t from = order_->loses_unsynced ? rng_.below(images_.size()) : images_.size() - 1;
  std::error_code error;
  fs::remove_all(folder_, error);
  SKEIN_CHECK(!error) << "cannot clear " << folder_ << ": " << error.message();
  fs::rename(images_[from], folder_, error);
  SKEIN_CHECK(!error) << "cannot put back " << images_[from] << ": " << error.message();
  has_struck_ = false;
  forget_images();
  disarm();
  // Copying gave the files of the image new times; one age for all says that nobody is writing.
  date_left(std::chrono::hours(0));
  world_.after(kWriterLivesUs, 0, [this] { date_left(std::chrono::hours(1)); });
  victim_.on_restored();
}

std::string CutShort::make_image() {
  std::string image = absl::StrCat(folder_, ".image-", ++made_);
  std::error_code error;
  fs::create_directories(image, error);
  fs::copy(folder_, image, fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
  SKEIN_CHECK(!error) << "cannot copy " << folder_ << " to " << image << ": " << error.message();
  return image;
}

void CutShort::forget_images() {
  if (has_struck_) return;
  std::error_code error;
  for (const std::string& image : std::exchange(images_, {})) fs::remove_all(image, error);
}

void CutShort::date_left(std::chrono::hours age) const {
  const auto then = fs::file_time_type::clock::now() - age;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != ".tmp") continue;
    for (const auto& file : fs::directory_iterator(entry.path(), error)) {
      fs::last_write_time(file.path(), then, error);
    }
    fs::last_write_time(entry.path(), then, error);
  }
}

}  // namespace skein::sim
