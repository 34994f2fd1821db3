// The calls of cuBLASLt that the plugin makes, by their documentation, slow and obvious. It has no
// bfloat16 products of odd strides, so that the ways around them are tested.

#include <cublasLt.h>
#include <cuda_bf16.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "controls.hpp"

namespace {

struct Product {
  cublasOperation_t operation_a = CUBLAS_OP_N, operation_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_stride = 0;
};

struct Layout {
  cudaDataType type;
  int64_t rows, columns, stride;
};

Product& product_of(cublasLtMatmulDesc_t raw) { return *reinterpret_cast<Product*>(raw); }
const Layout& layout_of(cublasLtMatrixLayout_t raw) { return *reinterpret_cast<Layout*>(raw); }

double number_at(const void* numbers, cudaDataType type, int64_t at) {
  if (type == CUDA_R_16BF) return __bfloat162float(static_cast<const __nv_bfloat16*>(numbers)[at]);
  return static_cast<const float*>(numbers)[at];
}

void write(double number, void* numbers, cudaDataType type, int64_t at) {
  const auto rounded = static_cast<float>(number);
  if (type == CUDA_R_16BF) {
    static_cast<__nv_bfloat16*>(numbers)[at] = __float2bfloat16_rn(rounded);
  } else {
    static_cast<float*>(numbers)[at] = rounded;
  }
}

/// Element (row, column) of op(matrix), stored by columns.
double element(const void* matrix, const Layout& layout, bool transposed, int64_t row,
               int64_t column) {
  return number_at(matrix, layout.type,
                   transposed ? column + row * layout.stride : row + column * layout.stride);
}

/// Up to 16 bytes, which the widest load takes.
uint64_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 16;
  return address & (~address + 1);
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  const double t = std::tanh(u);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* made) {
  *made = reinterpret_cast<cublasLtHandle_t>(std::malloc(1));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t library) {
  std::free(library);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "emulated"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t,
                                        cudaDataType_t) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(std::make_unique<Product>().release());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t raw) {
  const std::unique_ptr<Product> product(&product_of(raw));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t raw,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  Product& product = product_of(raw);
  auto set = [&](auto& to) {
    if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(product.operation_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(product.operation_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(product.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(product.bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(product.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(product.aux_stride);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  if (stride < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  auto layout = std::make_unique<Layout>();
  *layout = {type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride};
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(layout.release());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t raw) {
  const std::unique_ptr<Layout> layout(reinterpret_cast<Layout*>(raw));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(std::malloc(1));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t raw) {
  std::free(raw);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t raw,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  const Product& product = product_of(raw);
  *count = 0;
  if (product.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !emulated::settings().has_epilogues) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const int64_t odd = layout_of(a).stride | layout_of(b).stride | layout_of(c).stride;
  if (layout_of(a).type == CUDA_R_16BF && odd % 4 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (emulated::settings().has_even_strides_only && odd % 4 != 0) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (layout_of(a).type != layout_of(b).type ||
      (layout_of(c).type != layout_of(a).type && layout_of(c).type != CUDA_R_32F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  // An algorithm counts on the alignments that it was chosen for.
  found->algo.data[0] = alignment_of(product.bias);
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t raw, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_raw, const void* b,
                              cublasLtMatrixLayout_t b_raw, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_raw, void* d, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t) {
  const Product& product = product_of(raw);
  if (alignment_of(product.bias) < algorithm->data[0]) return CUBLAS_STATUS_INVALID_VALUE;
  const Layout &a_layout = layout_of(a_raw), &b_layout = layout_of(b_raw),
               &c_layout = layout_of(c_raw);
  const bool a_transposed = product.operation_a == CUBLAS_OP_T;
  const bool b_transposed = product.operation_b == CUBLAS_OP_T;
  const int64_t m = a_transposed ? a_layout.columns : a_layout.rows;
  const int64_t depth = a_transposed ? a_layout.rows : a_layout.columns;
  const int64_t n = b_transposed ? b_layout.rows : b_layout.columns;
  if ((b_transposed ? b_layout.columns : b_layout.rows) != depth || c_layout.rows != m ||
      c_layout.columns != n) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool has_bias = product.epilogue == CUBLASLT_EPILOGUE_BIAS ||
                        product.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  const float factor = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t at = i + j * c_layout.stride;
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += element(a, a_layout, a_transposed, i, k) * element(b, b_layout, b_transposed, k, j);
      }
      sum *= factor;
      if (kept != 0) sum += kept * number_at(c, c_layout.type, at);
      if (has_bias) sum += number_at(product.bias, c_layout.type, i);
      if (product.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        write(sum, product.aux, c_layout.type, i + j * product.aux_stride);
        sum = gelu(sum);
      }
      if (product.epilogue == CUBLASLT_EPILOGUE_DGELU) {
        sum *= gelu_slope(number_at(product.aux, c_layout.type, i + j * product.aux_stride));
      }
      write(sum, d, c_layout.type, at);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}
