#pragma once

#include <cstdlib>
#include <iostream>
#include <sstream>

namespace skein::plans {

/// Collects the facts of a failed check and ends the process with them when it goes out of scope.
class CheckFailure {
 public:
  CheckFailure(const char* condition, const char* file, int line) {
    message_ << file << ":" << line << ": check failed: " << condition << " ";
  }
  [[noreturn]] ~CheckFailure() {
    std::cerr << message_.str() << std::endl;
    std::abort();
  }
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;

  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

/// Gives both branches of `SKEIN_CHECK` the type void; `&` binds more loosely than `<<`.
struct CheckVoidify {
  void operator&(std::ostream&) const {}
};

}  // namespace skein::plans

/// Ends the process with the facts when `condition` is false. For bugs only, never for bad input.
#define SKEIN_CHECK(condition)                   \
  (condition) ? static_cast<void>(0)             \
              : ::skein::plans::CheckVoidify() & \
                    ::skein::plans::CheckFailure(#condition, __FILE__, __LINE__).stream()
