#!/usr/bin/env bash
# On a machine with a GPU, in the unpacked bundle of make_bundle.sh:
#   ./run.sh [--build] [--quick] [RESULTS]
# Tests the CUDA back end, looks for bad memory accesses and races, times it, and trains with it.
# --build makes the plugin anew from the kernels in kit/, which may have been changed here. --quick
# leaves the slow checkers, the large model and the training out. Everything lands in RESULTS (default:
# ./results). After each step its numbers are printed, and RESULTS/table.txt holds all that there are,
# so that whoever ends this early loses nothing; the last line says what failed. PyTorch, where it is,
# runs the same models beside ours. Installs nothing.
set -uo pipefail
cd "$(dirname "$0")"
build=0 quick=0 results=results
for argument in "$@"; do
  case "$argument" in
    --build) build=1 ;;
    --quick) quick=1 ;;
    *) results="$argument" ;;
  esac
done
mkdir -p "$results"
results=$(realpath "$results")
failed=()
steps=()  # Rows of the table: name, result, seconds.

cuda=${CUDA_HOME:-/usr/local/cuda}
export PATH="$PATH:$cuda/bin"
# cuBLASLt comes with the toolkit, or with a Python package.
blas=$(ls "$cuda"/lib64/libcublasLt.so.13 "$cuda"/targets/*/lib/libcublasLt.so.13 2>/dev/null | head -1)
[ -n "$blas" ] || blas=$(find / -xdev -name libcublasLt.so.13 -print -quit 2>/dev/null)
[ -n "$blas" ] || { echo "there is no libcublasLt.so.13 on this machine" >&2; exit 1; }
export LD_LIBRARY_PATH="$PWD/lib:$(dirname "$blas")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export SKEIN_CUDA_PLUGIN=${SKEIN_CUDA_PLUGIN:-$PWD/bin/libskein_cuda.so}

step() {  # name, seconds, command ...
  local name=$1 seconds=$2 start=$SECONDS
  shift 2
  timeout "$seconds" "$@" >"$results/$name.log" 2>&1
  local code=$? result=passed seconds_taken=$((SECONDS - start))
  if [ $code -eq 124 ]; then
    result="not done in $seconds s"
  elif [ $code -eq 77 ]; then
    result="no GPU"
  elif [ $code -ne 0 ]; then
    result="FAILED: exit $code"
  elif grep -q 'SKIPPED' "$results/$name.log"; then
    local counts
    counts=$(sed -n 's/^\[ *\(PASSED\|SKIPPED\) *\] \([0-9]\+\) tests\?.*/\2/p' "$results/$name.log")
    result=$(echo $counts | awk '{ print $1 == 0 ? "skipped" : $1 " passed, " $2 " not" }')
    grep -m 1 -A 1 ': Skipped' "$results/$name.log"
  fi
  if [ $code -ne 0 ]; then
    failed+=("$name")
    tail -n 25 "$results/$name.log"
  fi
  steps+=("$(printf '%-34s %-20s %7d' "$name" "$result" "$seconds_taken")")
  echo "== $name: $result after $seconds_taken s"
  print_numbers "$name"
  print_table >"$results/table.txt"
}

# What a step has measured, as far as it came.
print_numbers() {
  case "$1" in
    speed | speed_tf32) grep '%$\|^copy of\|^GPT-2 of' "$results/$1.log" ;;
    speed_large | torch*) grep '^GPT-2 of\|^PyTorch\|^no PyTorch' "$results/$1.log" ;;
    nccl_groups) sed -n '1,40p' "$results/$1.log" ;;
    train) tail -n 5 "$results/$1.log" ;;
  esac
}

# The ops of both logs of cuda_speed side by side: an op's name has 34 columns there. The share is that
# of what bounds an op: the bandwidth of a copy, or the fastest product, measured in the same run.
print_ops() {
  awk 'function value(text) { gsub(/^ +| +$/, "", text); return text }
       FNR == 1 { log_number++ }
       /%$/ && length($0) > 60 {
         name = substr($0, 1, 34)
         if (!(name in seen)) { seen[name] = 1; order[++count] = name }
         us[log_number, name] = value(substr($0, 35, 11))
         rate[log_number, name] = value(substr($0, 46, 11))
         share[log_number, name] = value(substr($0, 57))
       }
       END {
         for (i = 1; i <= count; ++i) {
           name = order[i]
           printf "%s %10s %11s %7s %10s %11s %7s\n", name, us[1, name], rate[1, name],
                  share[1, name], us[2, name], rate[2, name], share[2, name]
         }
       }' "$@"
}

print_table() {
  printf '\n%-34s %-20s %7s\n' step result seconds
  printf '%s\n' "${steps[@]}"
  grep -h '^PyTorch\|^GPT-2 of' "$results"/{torch,torch_large,speed,speed_large,speed_tf32}.log \
    2>/dev/null
  grep -qs '%$' "$results/speed.log" || return
  printf '\n%-34s %10s %11s %7s %10s %11s %7s\n' op us bfloat16 share us tf32 share
  touch "$results/speed_tf32.log"
  print_ops "$results/speed.log" "$results/speed_tf32.log"
  grep -h '^copy of' "$results/speed.log" "$results/speed_tf32.log"
}

make_plugin() {
  local made="$PWD/made"
  mkdir -p "$made"
  ls kit/gpu/cuda/kernels/*.cu | xargs -P "$(nproc)" -I{} sh -c \
    'nvcc -std=c++17 -O3 -lineinfo -Xptxas -v -Werror all-warnings -Xcompiler -fPIC \
       -gencode arch=compute_90,code=sm_90 -Ikit -c {} -o '"$made"'/$(basename {} .cu).o' || return
  g++ -shared -o "$made/libskein_cuda.so" "$made"/*.o \
    -Wl,--whole-archive kit/libskein_cuda_host.a -Wl,--no-whole-archive \
    kit/libskein_gpu.a kit/libskein_plans.a lib/libabsl*.so* "$blas" \
    "$cuda/lib64/libcudart_static.a" -ldl -lrt -lpthread -Wl,--as-needed \
    -Wl,--exclude-libs,libskein_gpu.a:libskein_plans.a:libcudart_static.a
}

(nvidia-smi; nvcc --version; nproc; cat commit) >"$results/machine.log" 2>&1
sed -n 1,20p "$results/machine.log"
if [ $build -eq 1 ]; then
  export -f make_plugin
  export blas cuda
  step build 300 bash -c make_plugin
  export SKEIN_CUDA_PLUGIN="$PWD/made/libskein_cuda.so"
fi

SKEIN_TEST_CUDA_PLUGIN=$SKEIN_CUDA_PLUGIN step load 60 bin/gpu_cuda_load_test
step tables 60 bin/gpu_cuda_tables_test
step ops 180 bin/gpu_cuda_ops_test
step rounding 60 bin/gpu_cuda_rounding_test
step llama_ops 120 bin/gpu_cuda_llama_ops_test
step model 120 bin/gpu_cuda_model_test
step decoder 120 bin/gpu_cuda_decoder_test
step memory 120 bin/gpu_cuda_memory_test
step shapes 240 bin/gpu_cuda_shapes_test
step speed 120 bin/cuda_speed
if python3 -c 'import torch' 2>/dev/null; then
  step torch 180 python3 torch_baseline.py --models small
fi
if [ $quick -eq 0 ]; then
  step speed_large 120 bin/cuda_speed --large
  if python3 -c 'import torch' 2>/dev/null; then
    step torch_large 180 python3 torch_baseline.py --models 1b
  fi
fi
step speed_tf32 120 bin/cuda_speed --precision tf32
# Ranks are processes on this one GPU.
nccl=${SKEIN_NCCL_LIBRARY:-}
[ -n "$nccl" ] || nccl=$(ls "$cuda"/lib64/libnccl.so.2 "$cuda"/lib/libnccl.so.2 2>/dev/null | head -1)
[ -n "$nccl" ] || nccl=$(find / -xdev -name libnccl.so.2 -print -quit 2>/dev/null)
if [ -n "$nccl" ]; then
  export SKEIN_NCCL_LIBRARY=$nccl
  if [ $quick -eq 0 ]; then
    step nccl_groups 560 bin/nccl_groups
  else
    step nccl_groups 240 bin/nccl_groups --ranks-max 4 --changes 10 --rounds 20
  fi
else
  echo "== NCCL is not here: groups of GPUs were not checked; set SKEIN_NCCL_LIBRARY to libnccl.so.2"
fi
if [ $quick -eq 0 ]; then
  if command -v compute-sanitizer >/dev/null; then
    step memcheck 240 compute-sanitizer --error-exitcode 9 bin/gpu_cuda_model_test
    step racecheck 240 compute-sanitizer --tool racecheck --error-exitcode 9 \
      bin/gpu_cuda_model_test --gtest_filter='*TrainsAsTheHostDoes*'
    step initcheck 240 compute-sanitizer --tool initcheck --error-exitcode 9 \
      bin/gpu_cuda_model_test --gtest_filter='*TrainsAsTheHostDoes/1'
  else
    echo "== compute-sanitizer is not here: memory accesses were not checked"
  fi
fi
if [ $quick -eq 0 ] && [ -x bin/skein ]; then
  seq 1 60000 >"$results/numbers.txt"
  cat >"$results/job.toml" <<JOB
[job]
name = "cuda"
dump_folder = "$results/run"
[model]
n_layer = 4
n_head = 4
n_embd = 256
[training]
steps = 30
seq_len = 128
micro_batch_size = 8
global_batch_size = 16
[data]
dataset = "text"
path = "$results/numbers.txt"
[device]
type = "cuda"
JOB
  step train 180 bin/skein train "$results/job.toml"
  if grep -rh 'no CUDA device' "$results"/run/*/logs; then failed+=(train_on_the_gpu); fi
fi

print_table | tee "$results/table.txt"
if [ ${#failed[@]} -eq 0 ]; then
  echo "all steps passed; logs in $results"
else
  echo "FAILED: ${failed[*]}; logs in $results"
  exit 1
fi
