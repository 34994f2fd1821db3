#include "tests/sim/watched_data.hpp"

#include <utility>

#include "plans/base/status_macros.hpp"

namespace skein::sim {
namespace {

class WatchedData final : public gpu::TokenData {
 public:
  WatchedData(std::shared_ptr<const gpu::TokenData> data, OnRead on_read)
      : data_(std::move(data)), on_read_(std::move(on_read)) {}

  uint64_t bytes() const override { return data_->bytes(); }
  uint64_t digest() const override { return data_->digest(); }
  uint64_t digest_of_tokens() const override { return data_->digest_of_tokens(); }
  bool is_unchanged() const override { return data_->is_unchanged(); }
  int64_t training_tokens() const override { return data_->training_tokens(); }
  int64_t validation_tokens() const override { return data_->validation_tokens(); }
  int64_t training_windows() const override { return data_->training_windows(); }
  int64_t validation_windows() const override { return data_->validation_windows(); }
  absl::Status training_sample(uint64_t sample, std::span<int32_t> tokens,
                               std::span<int32_t> targets) const override {
    SKEIN_RETURN_IF_ERROR(on_read_(sample));
    return data_->training_sample(sample, tokens, targets);
  }
  absl::Status validation_sample(uint64_t window, std::span<int32_t> tokens,
                                 std::span<int32_t> targets) const override {
    return data_->validation_sample(window, tokens, targets);
  }

 private:
  std::shared_ptr<const gpu::TokenData> data_;
  OnRead on_read_;
};

}  // namespace

std::shared_ptr<const gpu::TokenData> watch_data(std::shared_ptr<const gpu::TokenData> data,
                                                 OnRead on_read) {
  // What was prepared before comes back.
  if (!data || dynamic_cast<const WatchedData*>(data.get()) != nullptr) return data;
  return std::make_shared<WatchedData>(std::move(data), std::move(on_read));
}

}  // namespace skein::sim
