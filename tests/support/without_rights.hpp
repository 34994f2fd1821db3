#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

namespace skein::tests {

/// As long as it lives this process may read only what everybody may, also where tests run as root.
/// Not thread-safe: all threads lose their rights.
class WithoutRights {
 public:
  WithoutRights() { EXPECT_TRUE(geteuid() != 0 || seteuid(kNobody) == 0); }
  ~WithoutRights() { EXPECT_EQ(seteuid(getuid()), 0); }
  WithoutRights(const WithoutRights&) = delete;
  WithoutRights& operator=(const WithoutRights&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
};

}  // namespace skein::tests
