#include "plans/job/spelled_out.hpp"

namespace skein::plans {

ModelSpec spelled_out(const ModelSpec& model) {
  ModelSpec said = model;
  said.kv_heads = kv_heads(model);
  said.head_size = head_size(model);
  said.intermediate_size = mlp_width(model);
  said.has_qkv_bias = qkv_has_bias(model);
  return said;
}

}  // namespace skein::plans
