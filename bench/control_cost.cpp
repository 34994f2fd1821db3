// Measures what a commit costs in control, at the edge of the coordinator's process: from the
// moment when its link's thread has read the first byte of a step's last Ready or Reduced message
// to the moment when the last worker's Commit has been handed to its socket. Loaded with LD_PRELOAD
// into any build of skein (bench/schedule.py does that), so that one measure serves before and
// after a change of what lies between; workers that inherit it read no Ready and measure nothing.
//
// At the end of the process it writes one line per commit into $SKEIN_CONTROL_COST_FILE: the step
// and the microseconds to the first and to the last worker's Commit.
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include <capnp/serialize.h>

#include "net/control/frame.hpp"
#include "net/schema/control.capnp.h"

namespace {

using skein::net::FrameHead;
using skein::net::kFrameMagic;
using skein::net::schema::Envelope;
using Clock = std::chrono::steady_clock;

/// The bytes of one connection in one direction, cut into frames. Whatever does not begin with the
/// magic number of our frames is ignored for good.
class FrameCutter {
 public:
  /// Calls `on_frame(body, arrival of its first byte)` for each frame that is complete.
  template <class OnFrame>
  void add(const char* bytes, size_t count, Clock::time_point now, OnFrame on_frame) {
    if (is_foreign_) return;
    if (pending_.empty()) first_byte_ = now;
    pending_.insert(pending_.end(), bytes, bytes + count);
    FrameHead head;
    while (pending_.size() >= sizeof(head)) {
      std::memcpy(&head, pending_.data(), sizeof(head));
      is_foreign_ = head.magic != kFrameMagic;
      if (is_foreign_) return pending_.clear();
      const size_t end = sizeof(head) + head.words * sizeof(capnp::word);
      if (pending_.size() < end) return;
      // The buffer is aligned for any type, and the head is one word long.
      const auto* words = reinterpret_cast<const capnp::word*>(pending_.data() + sizeof(head));
      capnp::FlatArrayMessageReader message(kj::arrayPtr(words, head.words));
      if (!is_first_) on_frame(message.getRoot<Envelope>().getBody(), first_byte_);
      is_first_ = false;
      pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(end));
      first_byte_ = now;
    }
  }

 private:
  bool is_foreign_ = false;
  bool is_first_ = true;  // A connection begins with a Hello, which is no Envelope.
  std::vector<char> pending_;
  Clock::time_point first_byte_;
};

struct Commit {
  uint64_t step = 0;
  double first_us = 0, last_us = 0;
};

/// What the process has read and written. Thread-safe.
class Measure {
 public:
  void on_read(int descriptor, const void* bytes, size_t count, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    read_[descriptor].add(static_cast<const char*>(bytes), count, now,
                          [this](Envelope::Body::Reader body, Clock::time_point arrived) {
                            if (body.isReady() || body.isReduced()) last_ready_ = arrived;
                          });
  }

  void on_write(int descriptor, const void* bytes, size_t count, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    auto on_frame = [&](Envelope::Body::Reader body, Clock::time_point) {
      if (!body.isCommit() || last_ready_ == Clock::time_point()) return;
      const double us = std::chrono::duration<double, std::micro>(now - last_ready_).count();
      const uint64_t step = body.getCommit().getStep();
      if (commits_.empty() || commits_.back().step != step) commits_.push_back({step, us, us});
      commits_.back().last_us = us;
    };
    written_[descriptor].add(static_cast<const char*>(bytes), count, now, on_frame);
  }

  void on_close(int descriptor) {
    const std::lock_guard lock(mutex_);
    read_.erase(descriptor);
    written_.erase(descriptor);
  }

  void report() const {
    const char* path = std::getenv("SKEIN_CONTROL_COST_FILE");
    std::FILE* file = path && !commits_.empty() ? std::fopen(path, "a") : nullptr;
    if (file == nullptr) return;
    for (const Commit& each : commits_) {
      std::fprintf(file, "%llu %.1f %.1f\n", static_cast<unsigned long long>(each.step),
                   each.first_us, each.last_us);
    }
    std::fclose(file);
  }

 private:
  std::mutex mutex_;
  std::map<int, FrameCutter> read_, written_;  // By descriptor. A Hello is written, or read, first.
  Clock::time_point last_ready_;
  std::vector<Commit> commits_;
};

/// Never destroyed: threads read and write until the very end of the process.
Measure& measure() {
  static auto* const one = new Measure;
  return *one;
}

__attribute__((destructor)) void report() { measure().report(); }

template <class Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// The calls by which Cap'n Proto reads and writes sockets.
extern "C" {

ssize_t read(int descriptor, void* bytes, size_t count) {
  static auto* const call = original<ssize_t(int, void*, size_t)>("read");
  const ssize_t got = call(descriptor, bytes, count);
  if (got > 0) measure().on_read(descriptor, bytes, static_cast<size_t>(got), Clock::now());
  return got;
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  static auto* const call = original<ssize_t(int, const void*, size_t)>("write");
  const Clock::time_point now = Clock::now();
  const ssize_t done = call(descriptor, bytes, count);
  if (done > 0) measure().on_write(descriptor, bytes, static_cast<size_t>(done), now);
  return done;
}

ssize_t writev(int descriptor, const iovec* pieces, int count) {
  static auto* const call = original<ssize_t(int, const iovec*, int)>("writev");
  const Clock::time_point now = Clock::now();
  const ssize_t done = call(descriptor, pieces, count);
  size_t left = done > 0 ? static_cast<size_t>(done) : 0;
  for (int i = 0; i < count && left > 0; ++i) {
    const size_t bytes = std::min(left, pieces[i].iov_len);
    measure().on_write(descriptor, pieces[i].iov_base, bytes, now);
    left -= bytes;
  }
  return done;
}

int close(int descriptor) {
  static auto* const call = original<int(int)>("close");
  measure().on_close(descriptor);
  return call(descriptor);
}

}  // extern "C"
