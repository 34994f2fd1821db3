#include "communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using emulated::Ended;
using emulated::Member;

namespace {

/// The place of this rank: the real library takes equal ones for one GPU.
std::string place_of(int rank) {
  char host[64] = {};
  gethostname(host, sizeof host - 1);
  const char* named = std::getenv("NCCL_HOSTID");
  std::string place = named != nullptr ? named : host;
  // Ranks that are threads have one environment.
  if (std::getenv("EMULATED_NCCL_HOST_PER_RANK") != nullptr) place += "#" + std::to_string(rank);
  return place.substr(0, sizeof Member::place - 1);
}

/// How often it is asked for before an operation is queued.
int polls_of_a_call() {
  const char* named = std::getenv("EMULATED_NCCL_POLLS");
  return named != nullptr ? std::atoi(named) : 2;
}

ncclResult_t result_of(Ended ended) {
  if (ended == Ended::kDone) return ncclSuccess;
  if (ended == Ended::kStopped) return ncclInternalError;
  set_last_error("a peer has closed its connection");
  return ncclRemoteError;
}

}  // namespace

ncclComm::ncclComm(std::string name, int rank, int rank_count)
    : name_(std::move(name)),
      rank_(rank),
      rank_count_(rank_count),
      thread_([this] { thread_main(); }) {}

ncclComm::~ncclComm() {
  aborts_ = true;
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ncclComm::init() {
  push([this] { state_ = join([this] { return aborts_.load(); }); });
}

ncclResult_t ncclComm::join(const std::function<bool()>& is_stopped) {
  if (!segment_.open(name_, rank_count_)) {
    set_last_error("no shared memory for " + name_);
    return ncclSystemError;
  }
  Member& self = segment_.member(rank_);
  std::strncpy(self.place, place_of(rank_).c_str(), sizeof self.place - 1);
  self.process = getpid();
  self.joined = 1;
  const auto all_joined = [this] {
    for (int rank = 0; rank < rank_count_; ++rank) {
      if (segment_.member(rank).joined == 0) return false;
    }
    return true;
  };
  const Ended ended = segment_.wait(all_joined, is_stopped);
  if (ended != Ended::kDone || rank_ == 0) segment_.hide();
  if (ended != Ended::kDone) return result_of(ended);
  for (int rank = 0; rank < rank_count_; ++rank) {
    if (rank == rank_ || std::strcmp(segment_.member(rank).place, self.place) != 0) continue;
    set_last_error("Duplicate GPU detected : rank " + std::to_string(rank_) + " and rank " +
                   std::to_string(rank) + " both on one CUDA device");
    return ncclInvalidUsage;
  }
  return ncclSuccess;
}

Ended ncclComm::meet(std::atomic<uint64_t> Member::*counter, uint64_t count,
                     const std::function<bool()>& is_stopped) const {
  segment_.member(rank_).*counter = count;
  return segment_.wait(
      [&] {
        for (int rank = 0; rank < rank_count_; ++rank) {
          if (segment_.member(rank).*counter < count) return false;
        }
        return true;
      },
      is_stopped);
}

ncclResult_t ncclComm::all_reduce(const float* from, float* to, size_t count, cudaStream_t stream) {
  return queue(stream, [this, from, to, count](const std::function<bool()>& is_stopped) {
    for (size_t begin = 0; begin < count || begin == 0; begin += emulated::kChunkFloats) {
      const size_t floats = std::min<size_t>(count - begin, emulated::kChunkFloats);
      std::copy_n(from + begin, floats, segment_.member(rank_).chunk);
      Ended ended = meet(&Member::arrived, ++meetings_, is_stopped);
      if (ended != Ended::kDone) return ended;
      for (size_t i = 0; i < floats; ++i) {
        float sum = 0;
        for (int rank = 0; rank < rank_count_; ++rank) sum += segment_.member(rank).chunk[i];
        to[begin + i] = sum;
      }
      ended = meet(&Member::arrived, ++meetings_, is_stopped);
      if (ended != Ended::kDone) return ended;
    }
    return Ended::kDone;
  });
}

ncclResult_t ncclComm::broadcast(const float* from, float* to, size_t count, int root,
                                 cudaStream_t stream) {
  return queue(stream, [this, from, to, count, root](const std::function<bool()>& is_stopped) {
    for (size_t begin = 0; begin < count || begin == 0; begin += emulated::kChunkFloats) {
      const size_t floats = std::min<size_t>(count - begin, emulated::kChunkFloats);
      if (rank_ == root) std::copy_n(from + begin, floats, segment_.member(rank_).chunk);
      Ended ended = meet(&Member::arrived, ++meetings_, is_stopped);
      if (ended != Ended::kDone) return ended;
      std::copy_n(segment_.member(root).chunk, floats, to + begin);
      ended = meet(&Member::arrived, ++meetings_, is_stopped);
      if (ended != Ended::kDone) return ended;
    }
    return Ended::kDone;
  });
}

ncclResult_t ncclComm::exchange(std::vector<Transfer> transfers, cudaStream_t stream) {
  auto all = std::make_shared<std::vector<Transfer>>(std::move(transfers));
  return queue(stream, [this, all](const std::function<bool()>& is_stopped) {
    // Each goes on as far as its mailbox lets it.
    const auto go_on = [this](Transfer& each) {
      emulated::Mailbox& box =
          each.is_sent ? segment_.mailbox(rank_, each.peer) : segment_.mailbox(each.peer, rank_);
      while (each.done < each.bytes && (box.written == box.read) == each.is_sent) {
        if (each.is_sent) {
          box.bytes = std::min<size_t>(each.bytes - each.done, emulated::kMailBytes);
          std::copy_n(each.values + each.done, box.bytes, box.values);
          each.done += box.bytes;
          ++box.written;
        } else {
          std::copy_n(box.values, box.bytes, each.values + each.done);
          each.done += box.bytes;
          ++box.read;
        }
      }
      return each.done == each.bytes;
    };
    return segment_.wait(
        [&] {
          bool is_done = true;
          for (Transfer& each : *all) is_done = go_on(each) && is_done;
          return is_done;
        },
        is_stopped);
  });
}

ncclResult_t ncclComm::queue(cudaStream_t raw, Operation operation) {
  if (const ncclResult_t ready = ensure_ready(); ready != ncclSuccess) return ready;
  if (is_revoked_) {
    set_last_error("the communicator was revoked");
    return ncclInvalidUsage;
  }
  auto* stream = reinterpret_cast<emulated::Stream*>(raw);
  const uint64_t ticket = stream->begun++;
  const uint64_t number = ++queued_;
  polls_until_queued_ = polls_of_a_call();
  push([this, stream, ticket, number, operation = std::move(operation)] {
    // In the order of the stream, which an abort does not change.
    while (stream->ended != ticket) std::this_thread::sleep_for(std::chrono::microseconds(20));
    const auto is_stopped = [&] { return aborts_ || number <= stopped_; };
    if (!is_stopped()) {
      if (operation(is_stopped) == Ended::kMemberLost) {
        connections_ = result_of(Ended::kMemberLost);
      }
    }
    stream->ended = ticket + 1;
  });
  return ncclInProgress;
}

ncclResult_t ncclComm::manage(std::function<ncclResult_t()> task) {
  state_ = ncclInProgress;
  push([this, task = std::move(task)] { state_ = task(); });
  return ncclInProgress;
}

ncclResult_t ncclComm::split(int color, ncclComm** child) {
  if (const ncclResult_t ready = ensure_ready(); ready != ncclSuccess) return ready;
  *child = nullptr;
  const int number = ++splits_;
  return manage([this, color, child, number]() -> ncclResult_t {
    const auto is_stopped = [this] { return aborts_.load(); };
    segment_.member(rank_).color = color;
    Ended ended = meet(&Member::managed, ++managed_, is_stopped);
    if (ended != Ended::kDone) return result_of(ended);
    int rank = 0, rank_count = 0;
    for (int each = 0; each < rank_count_; ++each) {
      if (segment_.member(each).color != color) continue;
      if (each == rank_) rank = rank_count;
      ++rank_count;
    }
    ended = meet(&Member::managed, ++managed_, is_stopped);
    if (ended != Ended::kDone) return result_of(ended);
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    auto made = std::make_unique<ncclComm>(
        name_ + "s" + std::to_string(number) + "c" + std::to_string(color), rank, rank_count);
    const ncclResult_t joined = made->join(is_stopped);
    made->state_ = joined;
    if (joined == ncclSuccess) *child = made.release();
    return joined;
  });
}

ncclResult_t ncclComm::shrink(std::vector<int> left, bool stops, ncclComm** child) {
  if (const ncclResult_t ready = ensure_ready(); ready != ncclSuccess) return ready;
  if (stops) stopped_ = queued_.load();
  *child = nullptr;
  std::sort(left.begin(), left.end());
  std::string name = name_ + "k";
  for (int rank : left) name += "-" + std::to_string(rank);
  // Those who stay have all made the same shrinks of these ranks, but perhaps not of others.
  name += "n" + std::to_string(++shrinks_[left]);
  int rank = rank_;
  for (int each : left) {
    if (each == rank_) return ncclInvalidArgument;
    if (each < rank_) --rank;
  }
  const int rank_count = rank_count_ - static_cast<int>(left.size());
  return manage([this, name, rank, rank_count, child] {
    auto made = std::make_unique<ncclComm>(name, rank, rank_count);
    const ncclResult_t joined = made->join([this] { return aborts_.load(); });
    made->state_ = joined;
    if (joined == ncclSuccess) *child = made.release();
    return joined;
  });
}

ncclResult_t ncclComm::revoke() {
  if (state_ == ncclInProgress || polls_until_queued_ > 0) {
    std::fputs("NCCL's stand-in: revoked in a call, whose job the library frees\n", stderr);
    std::abort();
  }
  if (const ncclResult_t ready = ensure_ready(); ready != ncclSuccess) return ready;
  is_revoked_ = true;
  stopped_ = queued_.load();
  return manage([] { return ncclSuccess; });
}

ncclResult_t ncclComm::finalize() {
  if (const ncclResult_t ready = ensure_ready(); ready != ncclSuccess) return ready;
  if (is_revoked_) return ncclInvalidArgument;
  return manage([] { return ncclSuccess; });
}

void ncclComm::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && is_idle_; });
}

ncclResult_t ncclComm::async_error() {
  if (polls_until_queued_ > 0) {
    --polls_until_queued_;
    return ncclInProgress;
  }
  const auto state = static_cast<ncclResult_t>(state_.load());
  return state == ncclSuccess ? static_cast<ncclResult_t>(connections_.load()) : state;
}

ncclResult_t ncclComm::ensure_ready() {
  if (state_ != ncclInProgress && polls_until_queued_ == 0) return async_error();
  set_last_error("a call before the previous one has succeeded");
  return ncclInvalidArgument;
}

void ncclComm::push(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void ncclComm::thread_main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !tasks_.empty() || ends_; });
    if (tasks_.empty()) return;  // Also when aborted: tickets of streams are given back in turn.
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    is_idle_ = false;
    lock.unlock();
    task();
    lock.lock();
    is_idle_ = true;
    changed_.notify_all();
  }
}
