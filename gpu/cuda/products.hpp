#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/cuda/cuda_context.hpp"
#include "gpu/ops.hpp"

namespace skein::gpu {

/// What a device computes with: activations, and weights where products read them, in bfloat16; or
/// all in float32, which products round to TF32 inside the tensor cores, or not at all. Sums are
/// float32 in all.
enum class Precision { kBfloat16, kTf32, kFloat32 };
absl::StatusOr<Precision> parse_precision(const std::string& text);

/// Matrix products by cuBLASLt, on the compute stream. The library is asked once for each shape for
/// what it takes for fastest; same shapes, same bits. For the device's thread only.
class Products {
 public:
  /// What is done with a product where it is made.
  enum class Epilogue {
    kNone,
    kBias,          // c += extra [n], a row.
    kBiasGelu,      // extra as above; aux [m, n] := the sum, c := gelu(aux), the tanh form.
    kGeluGradient,  // aux [m, n] as above, read; c := c * gelu'(aux), before it is rounded.
  };
  /// c = op(a) op(b) as `Ops::Matmul`. a and b have one type; extra and aux have that of c, which
  /// is that of a or float32. With `added`, which lies as c and is not c, c = added + op(a) op(b);
  /// `shape.accumulate` is true then.
  struct Call {
    Ops::Matmul shape;
    ConstNumbers a, b;
    ConstNumbers added = nullptr;
    Numbers c;
    Epilogue epilogue = Epilogue::kNone;
    void* extra = nullptr;
    void* aux = nullptr;
  };

  static absl::StatusOr<std::unique_ptr<Products>> create(CudaContext& context,
                                                          Precision precision);
  ~Products();

  Precision precision() const { return precision_; }
  /// Unimplemented if the library has nothing for such a call; it is not asked again.
  absl::Status multiply(const Call& call);

 private:
  /// What the library's choice depends on: sizes, flags, and how pointers are aligned.
  struct Key {
    int64_t m, n, k;
    int64_t a_stride, b_stride, c_stride;
    bool transpose_a, transpose_b, accumulate;
    NumberType operands, result;
    Epilogue epilogue;
    uint32_t alignment_a, alignment_b, alignment_added, alignment_c, alignment_extra, alignment_aux;
    auto operator<=>(const Key&) const = default;
  };
  struct Choice;

  Products(CudaContext& context, Precision precision);
  static Key key_of(const Call& call);
  absl::StatusOr<const Choice*> choice_of(const Call& call);
  absl::StatusOr<std::unique_ptr<Choice>> choose(const Key& key, const Call& call) const;
  absl::Status find_algorithm(const Key& key, Choice& choice) const;

  CudaContext& context_;
  Precision precision_;
  cublasLtHandle_t library_ = nullptr;
  Buffer workspace_;
  std::map<Key, std::unique_ptr<Choice>> choices_;
};

}  // namespace skein::gpu
