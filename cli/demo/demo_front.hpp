#pragma once

#include <memory>

#include "cli/demo/demo_screen.hpp"

namespace skein::cli {

/// Where the demo is watched.
class DemoFront {
 public:
  virtual ~DemoFront() = default;
  /// Called often with what there is to see now.
  virtual void show(const DemoView& view) = 0;
  /// A key that was pressed since the last call; 0: none.
  virtual char key() = 0;
};

/// A screen that is drawn again and again on a terminal, or else plain lines without escape codes:
/// events, plans, and from time to time how training goes.
std::unique_ptr<DemoFront> make_demo_front();

}  // namespace skein::cli
