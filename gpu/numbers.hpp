#pragma once

#include <cstddef>
#include <cstdint>

// Plain C++17 without Abseil or CUDA, as kernels use it, too.

namespace skein::gpu {

/// How numbers lie in memory.
enum class NumberType : uint8_t { kFloat32, kBfloat16 };
constexpr int64_t bytes_of(NumberType type) { return type == NumberType::kFloat32 ? 4 : 2; }
constexpr int64_t float_bytes(int64_t floats) { return floats * bytes_of(NumberType::kFloat32); }

/// Where numbers begin in a device's memory, and their type: a pointer for what has one type on
/// some devices and another on others. A value; may be null. A float pointer becomes one by itself.
class ConstNumbers {
 public:
  ConstNumbers() = default;
  ConstNumbers(const float* floats) : data_(floats) {}
  ConstNumbers(std::nullptr_t) {}
  ConstNumbers(const void* data, NumberType type) : data_(data), type_(type) {}

  const void* data() const { return data_; }
  NumberType type() const { return type_; }
  bool is_null() const { return data_ == nullptr; }
  /// The numbers are float32 or there are none.
  const float* floats() const;
  ConstNumbers operator+(int64_t count) const {
    return {static_cast<const char*>(data_) + count * bytes_of(type_), type_};
  }

 private:
  const void* data_ = nullptr;
  NumberType type_ = NumberType::kFloat32;
};

/// The same of numbers that may be written.
class Numbers {
 public:
  Numbers() = default;
  Numbers(float* floats) : data_(floats) {}
  Numbers(std::nullptr_t) {}
  Numbers(void* data, NumberType type) : data_(data), type_(type) {}
  operator ConstNumbers() const { return {data_, type_}; }

  void* data() const { return data_; }
  NumberType type() const { return type_; }
  bool is_null() const { return data_ == nullptr; }
  float* floats() const;
  Numbers operator+(int64_t count) const {
    return {static_cast<char*>(data_) + count * bytes_of(type_), type_};
  }

 private:
  void* data_ = nullptr;
  NumberType type_ = NumberType::kFloat32;
};

}  // namespace skein::gpu
