// The entry point that libFuzzer calls.
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  skein::fuzz::run_one(data, bytes);
  return 0;
}
