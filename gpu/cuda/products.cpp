#include "gpu/cuda/products.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

/// What NVIDIA recommends for Hopper.
constexpr int64_t kWorkspaceBytes = 32 << 20;
/// Shapes that are remembered: a job has a few dozen.
constexpr size_t kChoicesMax = 4096;
constexpr uint32_t kAlignmentMax = 256;

absl::Status cublas_status(cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text =
      absl::StrCat(std::string(what), ": ", cublasLtGetStatusString(status), " (cuBLASLt)");
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return absl::UnimplementedError(text);
  return absl::InternalError(text);
}

/// The largest power of two up to 256 that divides the address.
uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const uintptr_t lowest = address & (~address + 1);
  return lowest == 0 ? kAlignmentMax
                     : static_cast<uint32_t>(std::min<uintptr_t>(lowest, kAlignmentMax));
}

cublasLtEpilogue_t to_library(Products::Epilogue epilogue) {
  switch (epilogue) {
    case Products::Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Products::Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Products::Epilogue::kBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Products::Epilogue::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

cudaDataType_t to_library(NumberType type) {
  return type == NumberType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
}

cublasComputeType_t to_library(Precision precision, NumberType operands) {
  return precision == Precision::kTf32 && operands == NumberType::kFloat32
             ? CUBLAS_COMPUTE_32F_FAST_TF32
             : CUBLAS_COMPUTE_32F;
}

template <class Value>
absl::Status set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                 const Value& value) {
  return cublas_status(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value),
                       "cannot describe a product");
}

/// Where the epilogue reads and writes.
absl::Status set_pointers(cublasLtMatmulDesc_t product, const Products::Call& call) {
  if (call.extra != nullptr) {
    SKEIN_RETURN_IF_ERROR(set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.extra));
  }
  if (call.aux == nullptr) return absl::OkStatus();
  return set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux);
}

}  // namespace

absl::StatusOr<Precision> parse_precision(const std::string& text) {
  if (text == "bfloat16") return Precision::kBfloat16;
  if (text == "tf32") return Precision::kTf32;
  if (text == "float32") return Precision::kFloat32;
  return absl::InvalidArgumentError(
      absl::StrCat("no precision \"", text, "\"; use bfloat16, tf32 or float32"));
}

/// The library sees columns where we see rows, so it computes the transpose: its A is our b, its B
/// our a, and its M our n.
struct Products::Choice {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
  absl::Status status;  // Not ok: the library has nothing for this.

  ~Choice() {
    if (product != nullptr) cublasLtMatmulDescDestroy(product);
    for (cublasLtMatrixLayout_t layout : {a, b, c}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }
};

absl::StatusOr<std::unique_ptr<Products>> Products::create(CudaContext& context,
                                                           Precision precision) {
  std::unique_ptr<Products> made(new Products(context, precision));  // Constructor is private.
  SKEIN_RETURN_IF_ERROR(cublas_status(cublasLtCreate(&made->library_), "cannot start cuBLASLt"));
  const int64_t limit = context.memory().limit;
  if (limit > 0 && limit < kWorkspaceBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a limit of ", limit, " bytes of device memory leaves no room for the ", kWorkspaceBytes,
        " in which products work, before any model; raise device.memory_limit_mb"));
  }
  SKEIN_ASSIGN_OR_RETURN(made->workspace_, context.take(kWorkspaceBytes));
  return made;
}

Products::Products(CudaContext& context, Precision precision)
    : context_(context), precision_(precision) {}

Products::~Products() {
  choices_.clear();
  if (library_ != nullptr) cublasLtDestroy(library_);
}

Products::Key Products::key_of(const Call& call) {
  const Ops::Matmul s = call.shape.with_strides();
  return {s.m,
          s.n,
          s.k,
          s.a_stride,
          s.b_stride,
          s.c_stride,
          s.transpose_a,
          s.transpose_b,
          s.accumulate,
          call.a.type(),
          call.c.type(),
          call.epilogue,
          alignment_of(call.a.data()),
          alignment_of(call.b.data()),
          alignment_of(call.added.is_null() ? call.c.data() : call.added.data()),
          alignment_of(call.c.data()),
          alignment_of(call.extra),
          alignment_of(call.aux)};
}

absl::Status Products::multiply(const Call& call) {
  if (call.a.type() != call.b.type() ||
      (call.c.type() != call.a.type() && call.c.type() != NumberType::kFloat32)) {
    return absl::InvalidArgumentError("a product of numbers of unlike types");
  }
  SKEIN_ASSIGN_OR_RETURN(const Choice* chosen, choice_of(call));
  const Choice& choice = *chosen;
  SKEIN_RETURN_IF_ERROR(choice.status);
  if (call.extra != nullptr) {
    SKEIN_RETURN_IF_ERROR(set(choice.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.extra));
  }
  if (call.aux != nullptr) {
    SKEIN_RETURN_IF_ERROR(set(choice.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux));
  }
  const void* added = call.added.is_null() ? call.c.data() : call.added.data();
  const float alpha = 1;
  const float beta = call.shape.accumulate ? 1 : 0;
  return cublas_status(
      cublasLtMatmul(library_, choice.product, &alpha, call.b.data(), choice.a, call.a.data(),
                     choice.b, &beta, added, choice.c, call.c.data(), choice.c, &choice.algorithm,
                     workspace_.data(), choice.workspace_bytes, context_.compute()),
      absl::StrCat("product of ", call.shape.m, " x ", call.shape.n, " x ", call.shape.k));
}

absl::StatusOr<const Products::Choice*> Products::choice_of(const Call& call) {
  const Key key = key_of(call);
  auto found = choices_.find(key);
  if (found == choices_.end()) {
    if (choices_.size() >= kChoicesMax) choices_.clear();
    SKEIN_ASSIGN_OR_RETURN(auto choice, choose(key, call));
    found = choices_.emplace(key, std::move(choice)).first;
  }
  return found->second.get();
}

absl::StatusOr<std::unique_ptr<Products::Choice>> Products::choose(const Key& key,
                                                                   const Call& call) const {
  auto choice = std::make_unique<Choice>();
  SKEIN_RETURN_IF_ERROR(cublas_status(
      cublasLtMatmulDescCreate(&choice->product, to_library(precision_, key.operands), CUDA_R_32F),
      "cannot describe a product"));
  const cublasOperation_t operation_a = key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t operation_b = key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  SKEIN_RETURN_IF_ERROR(set(choice->product, CUBLASLT_MATMUL_DESC_TRANSA, operation_a));
  SKEIN_RETURN_IF_ERROR(set(choice->product, CUBLASLT_MATMUL_DESC_TRANSB, operation_b));
  SKEIN_RETURN_IF_ERROR(
      set(choice->product, CUBLASLT_MATMUL_DESC_EPILOGUE, to_library(key.epilogue)));
  if (key.epilogue == Epilogue::kBiasGelu || key.epilogue == Epilogue::kGeluGradient) {
    SKEIN_RETURN_IF_ERROR(set(choice->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.c_stride));
  }
  // What epilogues read and write has the type of the result unless they are told of another.
  const cudaDataType_t type = to_library(key.operands);
  auto layout = [](cublasLtMatrixLayout_t* made, cudaDataType_t of, int64_t rows, int64_t columns,
                   int64_t stride) {
    return cublas_status(cublasLtMatrixLayoutCreate(made, of, static_cast<uint64_t>(rows),
                                                    static_cast<uint64_t>(columns), stride),
                         "cannot describe a matrix");
  };
  // Our row-major [r, c] is the library's [c, r], and our stride its leading dimension.
  SKEIN_RETURN_IF_ERROR(layout(&choice->a, type, key.transpose_b ? key.k : key.n,
                               key.transpose_b ? key.n : key.k, key.b_stride));
  SKEIN_RETURN_IF_ERROR(layout(&choice->b, type, key.transpose_a ? key.m : key.k,
                               key.transpose_a ? key.k : key.m, key.a_stride));
  SKEIN_RETURN_IF_ERROR(layout(&choice->c, to_library(key.result), key.n, key.m, key.c_stride));
  // The library looks at them when it is asked what it supports.
  SKEIN_RETURN_IF_ERROR(set_pointers(choice->product, call));
  choice->status = find_algorithm(key, *choice);
  return choice;
}

absl::Status Products::find_algorithm(const Key& key, Choice& choice) const {
  cublasLtMatmulPreference_t wishes = nullptr;
  SKEIN_RETURN_IF_ERROR(
      cublas_status(cublasLtMatmulPreferenceCreate(&wishes), "cannot describe wishes"));
  const uint64_t workspace = kWorkspaceBytes;
  auto wish = [wishes](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return cublasLtMatmulPreferenceSetAttribute(wishes, attribute, &value, sizeof value);
  };
  (void)wish(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  (void)wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment_b);
  (void)wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment_a);
  (void)wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment_added);
  (void)wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment_c);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      library_, choice.product, choice.a, choice.b, choice.c, choice.c, wishes, 1, &found, &count);
  (void)cublasLtMatmulPreferenceDestroy(wishes);
  const std::string what = absl::StrCat("product of ", key.m, " x ", key.n, " x ", key.k);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
    return absl::UnimplementedError(
        absl::StrCat(what, ": no algorithm, ", cublasLtGetStatusString(status), " (cuBLASLt)"));
  }
  choice.algorithm = found.algo;
  choice.workspace_bytes = found.workspaceSize;
  return absl::OkStatus();
}

}  // namespace skein::gpu
