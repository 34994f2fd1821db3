#include "gpu/host/products.hpp"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include "plans/base/check.hpp"

namespace skein::gpu {

void matmul_on_this_thread(const Ops::Matmul& shape, float factor, ConstMatrix a, ConstMatrix b,
                           Matrix c) {
  // Threads are ours (ThreadPool); the library's own number is a setting of each calling thread.
  thread_local const bool is_single = (omp_set_num_threads(1), true);
  SKEIN_CHECK(is_single) << "one thread per call";
  const dnnl_status_t status = dnnl_sgemm(
      shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N', shape.m, shape.n, shape.k,
      factor, a.data, a.stride, b.data, b.stride, shape.accumulate ? 1.0F : 0.0F, c.data, c.stride);
  SKEIN_CHECK(status == dnnl_success)
      << "dnnl_sgemm of " << shape.m << " x " << shape.n << " x " << shape.k << " gave " << status;
}

}  // namespace skein::gpu
