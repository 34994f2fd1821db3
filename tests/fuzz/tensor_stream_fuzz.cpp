// Bytes as what several connections do to one stream of tensors: they announce parts, good ones and
// others, bring them, give them up and repeat them, while whoever takes the tensors holds some. A
// model says what the stream must answer, and each tensor has what was brought last, once.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "net/data/tensor_stream.hpp"
#include "plans/base/rng.hpp"
#include "tests/fuzz/target.hpp"

namespace skein::fuzz {
namespace {

using Part = std::pair<uint32_t, uint32_t>;  // First row and count.

constexpr uint32_t kRowFloats = 2;
const std::vector<Part> kParts = {{2, 1}, {3, 2}, {5, 3}};
constexpr uint32_t kFirstRow = 2, kRows = 6;
/// Tensors that are on their way at a time; the stream may have less memory.
constexpr uint64_t kKeys = 4;

void demand(bool holds) {
  if (!holds) __builtin_trap();
}

class StreamWorld {
 public:
  StreamWorld(const uint8_t* data, size_t bytes) : data_(data), left_(bytes) {
    tensors_max_ = 1 + next() % 3u;
    net::TensorInbox::StreamSpec spec;
    spec.row_begin = kFirstRow;
    spec.row_count = kRows;
    spec.row_floats = kRowFloats;
    spec.parts = kParts;
    spec.tensors_max = tensors_max_;
    spec.on_tensor = [this](const net::TensorKey& key, net::TensorHandle tensor) {
      take(key.step, std::move(tensor));
    };
    stream_ = std::make_shared<net::TensorStream>(std::move(spec), [] {});
  }

  void run() {
    while (left_ > 0) {
      const uint8_t kind = next() % 8;
      if (kind < 4) {
        announce(oldest_ + next() % kKeys, next());
      } else if (kind < 6) {
        if (!readers_.empty()) bring(next() % readers_.size());
      } else if (kind == 6) {
        if (!readers_.empty()) give_up(next() % readers_.size());
      } else if (!held_.empty()) {
        held_.pop_front();
      }
    }
    complete_all();
  }

 private:
  /// A connection that reads a part.
  struct Reader {
    uint64_t step = 0;
    Part part;
    std::span<float> memory;
  };
  struct Tensor {
    std::map<Part, float> there;  // What each part was filled with.
  };

  uint8_t next() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }

  static net::TensorStream::Rows rows_of(uint64_t step, const Part& part) {
    net::TensorStream::Rows rows;
    rows.key.step = step;
    std::tie(rows.begin, rows.count) = part;
    rows.bytes = uint64_t{rows.count} * kRowFloats * sizeof(float);
    return rows;
  }

  bool is_being_read(uint64_t step, const Part& part) const {
    return std::any_of(readers_.begin(), readers_.end(),
                       [&](const Reader& each) { return each.step == step && each.part == part; });
  }
  bool has_memory(uint64_t step) const {
    const auto tensor = tensors_.find(step);
    const bool is_read = std::any_of(readers_.begin(), readers_.end(),
                                     [&](const Reader& each) { return each.step == step; });
    return is_read || (tensor != tensors_.end() && !tensor->second.there.empty());
  }
  size_t with_memory() const {
    std::set<uint64_t> steps;
    for (const auto& [step, tensor] : tensors_) {
      if (has_memory(step)) steps.insert(step);
    }
    for (const Reader& each : readers_) steps.insert(each.step);
    return steps.size();
  }

  /// Also parts that overlap with others, or whose size is not theirs.
  void announce(uint64_t step, uint8_t choice) {
    const bool is_part = choice % 8 != 7;
    Part part = kParts[choice % kParts.size()];
    if (!is_part) part.second += 1 + choice / 128;
    net::TensorStream::Rows rows = rows_of(step, part);
    if (choice % 64 == 6) rows.bytes += sizeof(float);
    const bool is_right = is_part && choice % 64 != 6;
    demand(stream_->check(rows).ok() == is_right);
    if (is_right) begin(step, part);
  }

  /// As an inbox does with rows that are a part.
  void begin(uint64_t step, const Part& part) {
    const net::TensorStream::Rows rows = rows_of(step, part);
    const bool is_repeat = done_.contains(step) || tensors_[step].there.contains(part);
    demand(stream_->is_repeat(rows) == is_repeat);
    demand(stream_->is_being_read(rows) == is_being_read(step, part));
    if (is_repeat) return;
    const bool has_space =
        has_memory(step) ? !is_being_read(step, part) : with_memory() + held_.size() < tensors_max_;
    demand(stream_->has_space(rows) == has_space);
    if (!has_space) return;
    const std::span<float> memory = stream_->reserve(rows).value();
    demand(memory.size() == size_t{part.second} * kRowFloats);
    for (const Reader& other : readers_) demand(are_apart(memory, other.memory));
    for (const net::TensorHandle& tensor : held_) demand(are_apart(memory, *tensor));
    readers_.push_back({step, part, memory});
  }

  static bool are_apart(std::span<const float> one, std::span<const float> other) {
    return one.data() + one.size() <= other.data() || other.data() + other.size() <= one.data();
  }

  void bring(size_t index) {
    const Reader reader = readers_[index];
    readers_.erase(readers_.begin() + static_cast<ptrdiff_t>(index));
    const float filling = ++fillings_;
    std::fill(reader.memory.begin(), reader.memory.end(), filling);
    tensors_[reader.step].there[reader.part] = filling;
    const bool is_complete = tensors_[reader.step].there.size() == kParts.size();
    stream_->arrived(rows_of(reader.step, reader.part));
    demand(done_.contains(reader.step) == is_complete);
    // Who says so twice says nothing new.
    stream_->arrived(rows_of(reader.step, reader.part));
  }

  /// Half of it has come.
  void give_up(size_t index) {
    const Reader reader = readers_[index];
    readers_.erase(readers_.begin() + static_cast<ptrdiff_t>(index));
    const auto half = reader.memory.first(reader.memory.size() / 2);
    std::fill(half.begin(), half.end(), -1.0F);
    stream_->abandon(rows_of(reader.step, reader.part));
    // Neither giving up again nor an end that comes after all changes anything.
    stream_->abandon(rows_of(reader.step, reader.part));
    stream_->arrived(rows_of(reader.step, reader.part));
  }

  void take(uint64_t step, net::TensorHandle tensor) {
    demand(done_.insert(step).second);
    demand(tensor->size() == size_t{kRows} * kRowFloats);
    for (const Reader& reader : readers_) demand(reader.step != step);
    for (const auto& [part, filling] : tensors_.at(step).there) {
      const auto rows = tensor->subspan(size_t{part.first - kFirstRow} * kRowFloats,
                                        size_t{part.second} * kRowFloats);
      demand(std::all_of(rows.begin(), rows.end(), [&](float each) { return each == filling; }));
    }
    tensors_.erase(step);
    held_.push_back(std::move(tensor));
    while (done_.contains(oldest_)) ++oldest_;
  }

  /// Nothing that a connection has done is in the way of those that bring everything.
  void complete_all() {
    while (!readers_.empty()) give_up(0);
    held_.clear();
    std::vector<uint64_t> begun;
    for (const auto& [step, tensor] : tensors_) {
      if (has_memory(step)) begun.push_back(step);
    }
    begun.push_back(oldest_ + kKeys);
    for (const uint64_t step : begun) {
      for (const Part& part : kParts) {
        begin(step, part);
        if (!readers_.empty()) bring(0);
      }
      demand(done_.contains(step));
      held_.clear();
    }
  }

  const uint8_t* data_;
  size_t left_;
  uint32_t tensors_max_ = 1;
  std::shared_ptr<net::TensorStream> stream_;
  std::vector<Reader> readers_;
  std::map<uint64_t, Tensor> tensors_;  // Those that are not complete, by step.
  std::set<uint64_t> done_;
  std::deque<net::TensorHandle> held_;
  uint64_t oldest_ = 0;  // The first step that is not done.
  float fillings_ = 0;   // Each is another number.
};

}  // namespace

void run_one(const uint8_t* data, size_t bytes) { StreamWorld(data, bytes).run(); }

size_t short_run() { return 20'000; }

std::vector<std::vector<uint8_t>> seeds() {
  plans::Rng rng(20);
  std::vector<std::vector<uint8_t>> all;
  for (uint8_t i = 0; i < 6; ++i) {
    std::vector<uint8_t>& bytes = all.emplace_back(1000);
    for (uint8_t& each : bytes) each = static_cast<uint8_t>(rng.bits());
    bytes[0] = i;  // Memory for one tensor, two or three.
  }
  return all;
}

}  // namespace skein::fuzz
