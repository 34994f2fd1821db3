#include "gpu/cuda/cuda_ops.hpp"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/kernels/column_sums.hpp"
#include "gpu/cuda/kernels/elementwise.hpp"
#include "gpu/cuda/kernels/norm.hpp"
#include "gpu/cuda/kernels/rows.hpp"
#include "gpu/cuda/launch_shape.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

kernels::NormForward to_kernel(const Ops::NormForward& norm) {
  kernels::NormForward call;
  call.x = norm.x;
  call.weight = norm.weight;
  call.bias = norm.bias;
  call.y = norm.y;
  call.mean = norm.mean;
  call.rstd = norm.rstd;
  call.rows = norm.rows;
  call.columns = norm.columns;
  call.epsilon = norm.epsilon;
  return call;
}

/// The GPU copies from and to it directly: pinned memory of ours, which lives until the work ends,
/// or what another device has given.
bool is_reached(const float* memory) {
  cudaPointerAttributes place{};
  return cudaPointerGetAttributes(&place, memory) == cudaSuccess &&
         (place.type == cudaMemoryTypeHost || place.type == cudaMemoryTypeDevice);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::create(CudaContext& context,
                                                         Precision precision) {
  SKEIN_ASSIGN_OR_RETURN(auto products, Products::create(context, precision));
  std::unique_ptr<CudaOps> ops(
      new CudaOps(context, std::move(products)));  // Constructor is private.
  if (precision != Precision::kBfloat16) return ops;
  auto cudnn = CudnnAttention::create(context);
  if (cudnn.ok()) {
    ops->cudnn_ = std::move(*cudnn);
  } else {
    ops->remark_ = absl::StrCat("attention is by our own kernels, a third as fast as cuDNN's: ",
                                cudnn.status().message());
  }
  return ops;
}

CudaOps::CudaOps(CudaContext& context, std::unique_ptr<Products> products)
    : context_(context),
      products_(std::move(products)),
      staging_([&context](int64_t bytes) { return context.allocate_pinned(bytes); }) {}

bool CudaOps::note(const absl::Status& status) {
  if (error_.ok()) error_ = status;
  return status.ok();
}

void CudaOps::launched(absl::string_view what) { note(cuda_status(cudaGetLastError(), what)); }

void* CudaOps::scratch(Scratch which, int64_t bytes) {
  Buffer& memory = scratch_[which];
  if (memory.data() != nullptr && memory.bytes() >= bytes) return memory.data();
  // The old piece may be in use by what the stream still has to do; what uses it next comes behind.
  memory = Buffer();
  absl::StatusOr<Buffer> larger = context_.take(bytes);
  if (!note(larger.status())) return nullptr;
  memory = *std::move(larger);
  return memory.data();
}

const void* CudaOps::upload(Scratch which, const void* from, int64_t bytes) {
  void* to = scratch(which, bytes);
  absl::StatusOr<void*> staged = staging_.take(bytes);
  if (to == nullptr || !note(staged.status())) return nullptr;
  std::memcpy(*staged, from, static_cast<size_t>(bytes));
  const cudaError_t error =
      cudaMemcpyAsync(to, *staged, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream());
  return note(cuda_status(error, "cannot copy a table")) ? to : nullptr;
}

void CudaOps::download(const void* from, int64_t bytes, std::function<void(const void*)> use) {
  absl::StatusOr<void*> staged = staging_.take(bytes);
  if (!note(staged.status())) return;
  const cudaError_t error =
      cudaMemcpyAsync(*staged, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream());
  if (!note(cuda_status(error, "cannot copy to the host"))) return;
  at_finish_.push_back([memory = *staged, use = std::move(use)] { use(memory); });
}

absl::Status CudaOps::finish() {
  note(cuda_status(cudaStreamSynchronize(stream()), "work failed on the GPU"));
  if (error_.ok()) {
    for (const auto& action : at_finish_) action();
  }
  at_finish_.clear();
  staging_.reset();
  return std::exchange(error_, absl::OkStatus());
}

void CudaOps::fill_rows(ConstNumbers bias, Numbers y, int64_t rows, int64_t columns) {
  kernels::fill_rows(bias, y, rows, columns, stream());
  launched("fill_rows");
}

void CudaOps::add_column_sums(ConstNumbers dy, float* db, int64_t rows, int64_t columns) {
  auto* partial = scratch_of<float>(kPartialSums, kernels::slab_count(rows) * columns);
  if (partial == nullptr) return;
  kernels::add_column_sums(dy, db, partial, rows, columns, stream());
  launched("add_column_sums");
}

void CudaOps::norm_forward(const NormForward& norm) {
  kernels::norm_forward(to_kernel(norm), stream());
  launched("norm_forward");
}

void CudaOps::norm_backward(const NormBackward& norm) {
  if (norm.columns > kernels::kNormColumnsMax) {
    note(absl::InvalidArgumentError(absl::StrCat("no norm on CUDA for ", norm.columns,
                                                 " channels; use ", kernels::kNormColumnsMax,
                                                 " or fewer")));
    return;
  }
  kernels::NormBackward call;
  call.partial =
      scratch_of<float>(kPartialSums, 2 * kernels::norm_slab_count(norm.rows) * norm.columns);
  if (call.partial == nullptr) return;
  call.dy = norm.dy;
  call.x = norm.x;
  call.weight = norm.weight;
  call.mean = norm.mean;
  call.rstd = norm.rstd;
  call.residual = norm.residual;
  call.dx = norm.dx;
  call.dweight = norm.dweight;
  call.dbias = norm.dbias;
  call.rows = norm.rows;
  call.columns = norm.columns;
  kernels::norm_backward(call, stream());
  launched("norm_backward");
}

void CudaOps::gelu_forward(ConstNumbers x, Numbers y, int64_t count) {
  kernels::gelu_forward(x, y, count, stream());
  launched("gelu_forward");
}

void CudaOps::gelu_backward(ConstNumbers x, Numbers dy, int64_t count) {
  kernels::gelu_backward(x, dy, count, stream());
  launched("gelu_backward");
}

void CudaOps::swiglu_forward(const Swiglu& shape, ConstNumbers x, Numbers y) {
  kernels::swiglu_forward(x, y, shape.rows, shape.width, stream());
  launched("swiglu_forward");
}

void CudaOps::swiglu_backward(const Swiglu& shape, ConstNumbers x, ConstNumbers dy, Numbers dx) {
  kernels::swiglu_backward(x, dy, dx, shape.rows, shape.width, stream());
  launched("swiglu_backward");
}

void CudaOps::zero(Numbers x, int64_t count) {
  const auto bytes = static_cast<size_t>(count * bytes_of(x.type()));
  note(cuda_status(cudaMemsetAsync(x.data(), 0, bytes, stream()), "zero"));
}

void CudaOps::copy(ConstNumbers from, Numbers to, int64_t count) {
  if (from.type() != to.type()) {
    kernels::convert(from, to, count, stream());
    return launched("convert");
  }
  note(cuda_status(
      cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(count * bytes_of(to.type())),
                      cudaMemcpyDeviceToDevice, stream()),
      "copy"));
}

void CudaOps::add(ConstNumbers a, ConstNumbers b, Numbers y, int64_t count) {
  kernels::add(a, b, y, count, stream());
  launched("add");
}

void CudaOps::move_to_sums(const ExactSum& sum) {
  kernels::move_to_sums(sum, stream());
  launched("move_to_sums");
}

void CudaOps::add_sums(const double* from, double* to, int64_t count) {
  kernels::add_sums(from, to, count, stream());
  launched("add_sums");
}

void CudaOps::round_sums(const double* sums, float* values, int64_t count) {
  kernels::round_sums(sums, values, count, stream());
  launched("round_sums");
}

void CudaOps::copy_in(std::span<const float> from, Numbers to) {
  if (to.type() != NumberType::kFloat32) {
    const auto count = static_cast<int64_t>(from.size());
    auto* passing = scratch_of<float>(kPassing, count);
    if (passing == nullptr) return;
    copy_in(from, passing);
    return copy(passing, to, count);
  }
  const void* source = from.data();
  if (!is_reached(from.data())) {
    absl::StatusOr<void*> staged = staging_.take(static_cast<int64_t>(from.size_bytes()));
    if (!note(staged.status())) return;
    std::memcpy(*staged, from.data(), from.size_bytes());
    source = *staged;
  }
  note(cuda_status(
      cudaMemcpyAsync(to.data(), source, from.size_bytes(), cudaMemcpyDefault, stream()),
      "copy_in"));
}

void CudaOps::copy_out(ConstNumbers from, std::span<float> to) {
  if (from.type() != NumberType::kFloat32) {
    const auto count = static_cast<int64_t>(to.size());
    auto* passing = scratch_of<float>(kPassing, count);
    if (passing == nullptr) return;
    copy(from, passing, count);
    return copy_out(passing, to);
  }
  if (is_reached(to.data())) {
    note(cuda_status(
        cudaMemcpyAsync(to.data(), from.data(), to.size_bytes(), cudaMemcpyDefault, stream()),
        "copy_out"));
    return;
  }
  download(from.data(), static_cast<int64_t>(to.size_bytes()),
           [to](const void* copy) { std::memcpy(to.data(), copy, to.size_bytes()); });
}

}  // namespace skein::gpu
