#include "gpu/cuda/cudnn_attention.hpp"

#include <cudnn_frontend.h>

#include <cmath>
#include <compare>
#include <exception>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/shared_library.hpp"
#include "plans/base/status_macros.hpp"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // Where the front end looks for the library's functions.
}

namespace skein::gpu {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Shapes that are remembered. A job has one or two; prompts have many, of which later ones take
/// our kernels.
constexpr size_t kPlansMax = 64;

/// Names of tensors where a plan is run.
enum Uid : int64_t { kQ = 1, kK, kV, kOut, kLogSumExp, kDout, kDq, kDk, kDv };

absl::Status fe_status(fe::error_t error) {
  return error.is_good() ? absl::OkStatus() : absl::UnimplementedError(error.get_message());
}

/// Looks for it once in a process, which may have several devices.
absl::Status open_library() {
  static const absl::StatusOr<void*> library = [] {
    absl::StatusOr<void*> found =
        open_shared_library("cuDNN", "libcudnn.so.9", "SKEIN_CUDNN_LIBRARY");
    if (found.ok()) fe::cudnn_dlhandle = *found;
    return found;
  }();
  return library.status();
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

char* at(const void* begin, int64_t numbers) {
  return static_cast<char*>(const_cast<void*>(begin)) + numbers * 2;
}

/// Describes [B, heads, T, D] in rows of `stride` numbers.
fe::graph::Tensor_attributes heads_in_rows(int64_t uid, const kernels::AttentionShape& s,
                                           int64_t heads, int64_t stride) {
  return fe::graph::Tensor_attributes()
      .set_uid(uid)
      .set_dim({s.batch, heads, s.seq_len, s.size})
      .set_stride({s.seq_len * stride, s.size, stride, 1})
      .set_data_type(fe::DataType_t::BFLOAT16);
}

fe::graph::Tensor_attributes sums_of_exponentials(const kernels::AttentionShape& s) {
  return fe::graph::Tensor_attributes()
      .set_uid(kLogSumExp)
      .set_dim({s.batch, s.heads, s.seq_len, 1})
      .set_stride({s.heads * s.seq_len, s.seq_len, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

void make_output(const Tensor& tensor, const fe::graph::Tensor_attributes& form) {
  tensor->set_output(true)
      .set_uid(form.get_uid())
      .set_dim(form.get_dim())
      .set_stride(form.get_stride())
      .set_data_type(form.get_data_type());
}

/// The front end throws where it finds no library that it wants.
template <class Body>
absl::Status without_exceptions(const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cuDNN: ", error.what()));
  }
}

}  // namespace

class CudnnAttention::Library {
 public:
  explicit Library(CudaContext& context) : context_(context) {}
  ~Library() {
    plans_.clear();
    if (handle_ != nullptr) (void)fe::detail::destroy_handle(handle_);
  }

  absl::Status open() {
    SKEIN_RETURN_IF_ERROR(open_library());
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS ||
        fe::detail::set_stream(handle_, context_.compute()) != CUDNN_STATUS_SUCCESS) {
      return absl::UnavailableError("cuDNN cannot be used on this GPU");
    }
    return absl::OkStatus();
  }

  absl::Status run(const kernels::AttentionShape& shape, bool is_backward,
                   std::unordered_map<int64_t, void*> tensors) {
    for (const auto& [uid, tensor] : tensors) {
      if (!is_aligned(tensor)) return absl::UnimplementedError("tensors are not aligned");
    }
    const Key key{shape.batch, shape.seq_len, shape.heads, shape.kv_heads, shape.size, is_backward};
    SKEIN_ASSIGN_OR_RETURN(const Plan* plan, plan_of(key, shape));
    if (plan->workspace_bytes > workspace_.bytes()) {
      workspace_ = Buffer();
      absl::StatusOr<Buffer> memory = context_.take(plan->workspace_bytes);
      if (!memory.ok()) {  // Ours need less, and to ask at each call would empty the allocator's
                           // cache.
        absl::Status why = absl::UnimplementedError(memory.status().message());
        plans_.insert_or_assign(key, why);
        return why;
      }
      workspace_ = *std::move(memory);
    }
    fe::error_t error = plan->graph->execute(handle_, tensors, workspace_.data());
    return error.is_good() ? absl::OkStatus() : absl::InternalError(error.get_message());
  }

 private:
  struct Key {
    int64_t batch, seq_len, heads, kv_heads, size;
    bool is_backward;
    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    std::unique_ptr<fe::graph::Graph> graph;
    int64_t workspace_bytes = 0;
  };

  absl::StatusOr<const Plan*> plan_of(const Key& key, const kernels::AttentionShape& s) {
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      if (plans_.size() >= kPlansMax) return absl::UnimplementedError("too many shapes");
      found = plans_.emplace(key, make_plan(s, key.is_backward)).first;
    }
    if (!found->second.ok()) return found->second.status();
    return &*found->second;
  }

  absl::StatusOr<Plan> make_plan(const kernels::AttentionShape& s, bool is_backward) {
    if (s.size % 8 != 0) return absl::UnimplementedError("heads are not whole 16 bytes");
    Plan plan;
    plan.graph = std::make_unique<fe::graph::Graph>();
    plan.graph->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const absl::Status built = without_exceptions([&]() -> absl::Status {
      describe(s, is_backward, *plan.graph);
      SKEIN_RETURN_IF_ERROR(fe_status(plan.graph->build(handle_, {fe::HeurMode_t::A})));
      return fe_status(plan.graph->get_workspace_size(plan.workspace_bytes));
    });
    if (!built.ok()) return absl::UnimplementedError(built.message());
    return plan;
  }

  static void describe(const kernels::AttentionShape& s, bool is_backward,
                       fe::graph::Graph& graph) {
    const kernels::HeadOffsets first = kernels::head_offsets(s, 0);
    const Tensor q = graph.tensor(heads_in_rows(kQ, s, s.heads, first.qkv_stride));
    const Tensor k = graph.tensor(heads_in_rows(kK, s, s.kv_heads, first.qkv_stride));
    const Tensor v = graph.tensor(heads_in_rows(kV, s, s.kv_heads, first.qkv_stride));
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.size)));
    const auto out = heads_in_rows(kOut, s, s.heads, first.out_stride);
    if (!is_backward) {
      auto attributes = fe::graph::SDPA_attributes()
                            .set_generate_stats(true)
                            .set_causal_mask(true)
                            .set_attn_scale(scale);
      const auto [result, sums] = graph.sdpa(q, k, v, attributes);
      make_output(result, out);
      make_output(sums, sums_of_exponentials(s));
      return;
    }
    auto attributes = fe::graph::SDPA_backward_attributes()
                          .set_causal_mask(true)
                          .set_attn_scale(scale)
                          .set_deterministic_algorithm(true);
    const auto [dq, dk, dv] =
        graph.sdpa_backward(q, k, v, graph.tensor(out),
                            graph.tensor(heads_in_rows(kDout, s, s.heads, first.out_stride)),
                            graph.tensor(sums_of_exponentials(s)), attributes);
    make_output(dq, heads_in_rows(kDq, s, s.heads, first.qkv_stride));
    make_output(dk, heads_in_rows(kDk, s, s.kv_heads, first.qkv_stride));
    make_output(dv, heads_in_rows(kDv, s, s.kv_heads, first.qkv_stride));
  }

  CudaContext& context_;
  cudnnHandle_t handle_ = nullptr;
  std::map<Key, absl::StatusOr<Plan>> plans_;
  Buffer workspace_;
};

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::create(CudaContext& context) {
  auto library = std::make_unique<Library>(context);
  SKEIN_RETURN_IF_ERROR(without_exceptions([&] { return library->open(); }));
  return std::unique_ptr<CudnnAttention>(
      new CudnnAttention(std::move(library)));  // Constructor is private.
}

CudnnAttention::CudnnAttention(std::unique_ptr<Library> library) : library_(std::move(library)) {}
CudnnAttention::~CudnnAttention() = default;

absl::Status CudnnAttention::forward(const kernels::AttentionForward& call) {
  const kernels::HeadOffsets first = kernels::head_offsets(call.shape, 0);
  return without_exceptions([&] {
    return library_->run(call.shape, false,
                         {{kQ, at(call.qkv.data(), first.q)},
                          {kK, at(call.qkv.data(), first.k)},
                          {kV, at(call.qkv.data(), first.v)},
                          {kOut, call.out.data()},
                          {kLogSumExp, call.log_sum_exp}});
  });
}

absl::Status CudnnAttention::backward(const kernels::AttentionBackward& call) {
  const kernels::HeadOffsets first = kernels::head_offsets(call.shape, 0);
  return without_exceptions([&] {
    return library_->run(call.shape, true,
                         {{kQ, at(call.qkv.data(), first.q)},
                          {kK, at(call.qkv.data(), first.k)},
                          {kV, at(call.qkv.data(), first.v)},
                          {kOut, at(call.out.data(), 0)},
                          {kLogSumExp, const_cast<float*>(call.log_sum_exp)},
                          {kDout, at(call.dout.data(), 0)},
                          {kDq, at(call.dqkv.data(), first.q)},
                          {kDk, at(call.dqkv.data(), first.k)},
                          {kDv, at(call.dqkv.data(), first.v)}});
  });
}

}  // namespace skein::gpu
