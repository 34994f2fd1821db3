#include "segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace emulated {

bool Segment::open(const std::string& name, int rank_count) {
  name_ = "/skein-nccl-" + name;
  rank_count_ = rank_count;
  const auto ranks = static_cast<size_t>(rank_count);
  bytes_ = ranks * sizeof(Member) + ranks * ranks * sizeof(Mailbox);
  const int file = shm_open(name_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return false;
  // Whoever comes second leaves the size as it is.
  if (ftruncate(file, static_cast<off_t>(bytes_)) == 0) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) memory_ = memory;
  }
  ::close(file);
  return memory_ != nullptr;
}

void Segment::close() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
  memory_ = nullptr;
}

void Segment::hide() { shm_unlink(name_.c_str()); }

Member& Segment::member(int rank) const { return static_cast<Member*>(memory_)[rank]; }

Mailbox& Segment::mailbox(int from, int to) const {
  auto* first = reinterpret_cast<Mailbox*>(static_cast<Member*>(memory_) + rank_count_);
  return first[from * rank_count_ + to];
}

Ended Segment::wait(const std::function<bool()>& is_done,
                    const std::function<bool()>& is_stopped) const {
  static const bool notices_death = std::getenv("EMULATED_NCCL_NOTICES_DEATH") != nullptr;
  for (int round = 0;; ++round) {
    if (is_done()) return Ended::kDone;
    if (is_stopped()) return Ended::kStopped;
    if (round < 200) {
      std::this_thread::yield();
      continue;
    }
    if (notices_death && round % 16 == 0 && has_lost_member()) return Ended::kMemberLost;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

namespace {

/// Also if its parent has not asked for it yet.
bool has_ended(int32_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end == std::string::npos || text.compare(name_end, 3, ") Z") == 0;
}

}  // namespace

bool Segment::has_lost_member() const {
  for (int rank = 0; rank < rank_count_; ++rank) {
    const int32_t process = member(rank).process;
    if (process != 0 && has_ended(process)) return true;
  }
  return false;
}

}  // namespace emulated
