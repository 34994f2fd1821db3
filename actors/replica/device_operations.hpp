#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "plans/collectives/collective_order.hpp"
#include "plans/collectives/communication_order.hpp"

namespace skein::actors {

/// The order in which groups and links that share the device do what they do with it: one operation
/// at a time, as all of their members agree. Owned by one actor; touched only from its handlers.
class DeviceOperations {
 public:
  /// `begin` starts an operation that is ready; `on_end` follows.
  DeviceOperations(plans::CommunicationPlaces places,
                   std::function<void(const plans::CollectiveKey&)> begin)
      : places_(std::move(places)), begin_(std::move(begin)) {}

  const plans::CommunicationPlaces& places() const { return places_; }
  void expect(const plans::CollectiveKey& key) { order_.expect(key); }
  void on_ready(const plans::CollectiveKey& key) { begin_next(order_.on_ready(key)); }
  void on_end(const plans::CollectiveKey& key) { begin_next(order_.on_end(key)); }
  /// True once for each step: whoever has operations of it then expects them all.
  bool is_new(uint64_t step) {
    if (step < expected_until_) return false;
    expected_until_ = step + 1;
    return true;
  }

 private:
  void begin_next(const std::optional<plans::CollectiveKey>& key) {
    if (key) begin_(*key);
  }

  const plans::CommunicationPlaces places_;  // The plan's.
  const std::function<void(const plans::CollectiveKey&)> begin_;
  plans::CollectiveOrder order_;
  uint64_t expected_until_ = 0;  // Operations of the steps before it are in the order.
};

}  // namespace skein::actors
