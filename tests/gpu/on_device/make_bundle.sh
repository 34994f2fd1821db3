#!/usr/bin/env bash
# Makes a bundle with which a machine that has CUDA 13 and a GPU, but no packages of ours, tests and
# times the CUDA back end:
#   tests/gpu/on_device/make_bundle.sh OUT.tar.gz [--jobs N] [--without-train] [--build FOLDER]
# In it: tests, the benchmark, `skein`, the plugin, the Debian libraries that they need (not CUDA's),
# and what the plugin is linked from, so that kernels can be changed and built there. run.sh uses it.
# --without-train leaves `skein` out. --build names a build folder of this tree (default build/bundle).
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,8p' "$0" >&2; exit 2; }
out=$(realpath -m "$1")
shift
jobs=$(nproc) build=build/bundle targets=(skein)
while [ $# -gt 0 ]; do
  case "$1" in
    --jobs) jobs=$2; shift ;;
    --build) build=$2; shift ;;
    --without-train) targets=() ;;
    *) sed -n '2,8p' "$0" >&2; exit 2 ;;
  esac
  shift
done
cd "$(dirname "$0")/../../.."
limit_mb=56  # Of what travels.

bash cmake/install-python-packages.sh cudnn-frontend || echo "no front end of cuDNN: attention is by our kernels" >&2
# Not this machine's instruction set: the other one's may lack it.
cmake --preset release -B "$build" -DSKEIN_MARCH=x86-64-v3 -DSKEIN_CUDA=ON >/dev/null
targets+=(gpu_cuda_load_test gpu_cuda_tables_test gpu_cuda_ops_test gpu_cuda_llama_ops_test
  gpu_cuda_model_test gpu_cuda_decoder_test gpu_cuda_memory_test
  gpu_cuda_rounding_test gpu_cuda_shapes_test cuda_speed nccl_groups)
cmake --build "$build" -j"$jobs" --target skein_cuda skein_cuda_host "${targets[@]}"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{bin,lib,kit/gpu/cuda}
for target in "${targets[@]}"; do
  cp "$(find "$build" -type f -executable -name "$target" -print -quit)" "$folder/bin/"
done
cp "$build/libskein_cuda.so" "$folder/bin/"
cp tests/gpu/on_device/{run.sh,kernel_times.py,same_curve.py} bench/gpu/torch_baseline.py "$folder/"
mkdir -p "$folder/tests"
cp -r tests/e2e tests/support "$folder/tests/"
# The C and C++ libraries are the machine's own, and CUDA's are there.
ldd "$folder"/bin/* | awk '/=> \// { print $3 }' | sort -u |
  grep -Ev '/(libc|libm|libmvec|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|ld-linux.*)\.so' |
  grep -Ev '/(libcu|libnv|libnccl)' | while read -r library; do cp -L "$library" "$folder/lib/"; done
strip --strip-debug "$folder"/bin/* "$folder"/lib/*
cp -r gpu/cuda/kernels gpu/cuda/launch_shape.hpp "$folder/kit/gpu/cuda/"
cp gpu/numbers.hpp "$folder/kit/gpu/"
cp "$build"/gpu/cuda/libskein_cuda_host.a "$build"/gpu/libskein_gpu.a "$build"/plans/libskein_plans.a \
  "$folder/kit/"
strip --strip-debug "$folder"/kit/*.a
git describe --always --dirty --abbrev=40 >"$folder/commit" 2>/dev/null || true

tar -C "$folder" -czf "$out" .
mb=$(du -m "$out" | cut -f1)
[ "$mb" -le $limit_mb ] || { echo "the bundle has $mb MB, more than $limit_mb" >&2; exit 1; }
echo "$out: $mb MB packed, $(du -sm "$folder" | cut -f1) MB unpacked"
