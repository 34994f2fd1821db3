#include "actors/unguessable_bits.hpp"

#include <sys/random.h>

#include "plans/base/check.hpp"

namespace skein::actors {

uint64_t unguessable_bits() {
  uint64_t bits = 0;
  while (bits == 0) {
    // So few bytes come whole, once the machine has booted.
    const ssize_t got = getrandom(&bits, sizeof(bits), 0);
    SKEIN_CHECK(got == static_cast<ssize_t>(sizeof(bits))) << "getrandom gave " << got << " bytes";
  }
  return bits;
}

}  // namespace skein::actors
