#!/usr/bin/env bash
# On a machine with a GPU, in the unpacked bundle of make_bundle.sh:
#   ./run.sh [--build] [--parts LIST] [RESULTS]
# Tests the CUDA back end, times it, looks for bad memory accesses and races, and trains with it.
# --build makes the plugin anew from the kernels in kit/, which may have been changed here. --parts names
# what is done, with commas: tests, speed, attention, kernels, large, tf32, profile, nccl, train,
# checkers, and torch, which runs the same models beside ours in what of these is timed; all by
# default. Everything lands in RESULTS (default: ./results). After each step, or each set of steps that
# run at once, its numbers are printed, and RESULTS/table.txt holds all that there are, for whoever
# ends this early; the last line says what failed. Installs nothing.
set -uo pipefail
cd "$(dirname "$0")"
all_parts=tests,torch,speed,attention,kernels,large,tf32,profile,nccl,train,checkers
build=0 results=results parts=$all_parts
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=1 ;;
    --parts) parts="${2:?--parts: which ones?}"; shift ;;
    --help) sed -n '2,12 s/^# \?//p' "$0"; exit 0 ;;
    -*) sed -n '2,12 s/^# \?//p' "$0" >&2; exit 2 ;;
    *) results="$1" ;;
  esac
  shift
done
for part in ${parts//,/ }; do
  [[ ",$all_parts," == *",$part,"* ]] || { echo "--parts: \"$part\" is none of $all_parts" >&2; exit 2; }
done
if [ ! -x bin/skein ]; then
  echo "== no bin/skein in this bundle: nothing is trained and no profile is made"
  parts=$(tr , '\n' <<<"$parts" | grep -vx 'profile\|train' | paste -sd,)
fi
mkdir -p "$results"
results=$(realpath "$results")
failed=()
steps=()  # Rows of the table: name, result, seconds.

cuda=${CUDA_HOME:-/usr/local/cuda}
export PATH="$PATH:$cuda/bin"
# A library comes with the toolkit, or with a Python package. Prints the first that is found.
library() {
  local found
  found=$(ls "$cuda"/lib64/"$1" "$cuda"/targets/*/lib/"$1" 2>/dev/null | head -1)
  [ -n "$found" ] || found=$(find / -xdev -name "$1" -print -quit 2>/dev/null)
  echo "$found"
}
blas=$(library libcublasLt.so.13)
[ -n "$blas" ] || { echo "there is no libcublasLt.so.13 on this machine" >&2; exit 1; }
cudnn=${SKEIN_CUDNN_LIBRARY:-$(library libcudnn.so.9)}
cudart=$(library libcudart.so.13)
nccl=${SKEIN_NCCL_LIBRARY:-$(library libnccl.so.2)}
if [ -n "$cudnn" ]; then export SKEIN_CUDNN_LIBRARY=$cudnn; else echo "== no libcudnn.so.9: attention is by our kernels"; fi
if [ -n "$nccl" ]; then export SKEIN_NCCL_LIBRARY=$nccl; fi
export LD_LIBRARY_PATH="$PWD/lib:$(dirname "$blas"):$(dirname "${cudart:-/nowhere}"):$(dirname "${cudnn:-/nowhere}")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export SKEIN_CUDA_PLUGIN=${SKEIN_CUDA_PLUGIN:-$PWD/bin/libskein_cuda.so}
has() { [[ ",$parts," == *",$1,"* ]]; }
torch=0
! has torch || ! python3 -c 'import torch' 2>/dev/null || torch=1

step() {  # name, seconds, command ...
  run_step "$@"
  tell_step "$1"
}

run_step() {
  local name=$1 seconds=$2 start=$SECONDS
  shift 2
  timeout "$seconds" "$@" >"$results/$name.log" 2>&1
  echo "$? $((SECONDS - start)) $seconds" >"$results/$name.code"
}

tell_step() {
  local name=$1 code seconds_taken seconds result=passed
  read -r code seconds_taken seconds <"$results/$name.code"
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
    grep -h '^\[  FAILED  \]' "$results/$name.log" | sort -u | head -n 30
    tail -n 12 "$results/$name.log" | cut -c1-300
  fi
  steps+=("$(printf '%-34s %-20s %7d' "$name" "$result" "$seconds_taken")")
  echo "== $name: $result after $seconds_taken s"
  print_numbers "$name"
  print_table >"$results/table.txt"
}

# Steps that do not mind each other, all at once: NAME SECONDS COMMAND, one a line.
together() {
  local lines=() line name
  mapfile -t lines
  for line in "${lines[@]}"; do run_step $line & done
  wait
  for line in "${lines[@]}"; do read -r name _ <<<"$line" && tell_step "$name"; done
}

# What a step has measured, as far as it came.
print_numbers() {
  case "$1" in
    speed* | attention*) grep '%$\|^copy of\|^GPT-2 of' "$results/$1.log" ;;
    torch*) grep '^GPT-2 of\|^PyTorch\|^no PyTorch\|^SDPA' "$results/$1.log" ;;
    kernels) head -n 45 "$results/kernels.txt" ;;
    nccl_groups) sed -n '1,40p' "$results/$1.log" ;;
    curve | profile | stages) tail -n 12 "$results/$1.log" ;;
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

if has tests; then
  export SKEIN_TEST_CUDA_PLUGIN=$SKEIN_CUDA_PLUGIN
  # Here PyTorch's compiler fills its cache, too, for what is timed below.
  [ $torch -eq 0 ] || ! has speed || timeout 240 python3 torch_baseline.py --models small >/dev/null 2>&1 &
  together <<TESTS
load 60 bin/gpu_cuda_load_test
tables 60 bin/gpu_cuda_tables_test
ops 180 bin/gpu_cuda_ops_test
rounding 60 bin/gpu_cuda_rounding_test
llama_ops 120 bin/gpu_cuda_llama_ops_test
model 120 bin/gpu_cuda_model_test
decoder 120 bin/gpu_cuda_decoder_test
memory 120 bin/gpu_cuda_memory_test
shapes 120 bin/gpu_cuda_shapes_test
TESTS
fi
if has speed; then
  step speed 120 bin/cuda_speed
  [ $torch -eq 0 ] || step torch 180 python3 torch_baseline.py --models small
fi
if has attention; then
  # With cuDNN it is in the table of ops.
  SKEIN_CUDNN_LIBRARY=/nowhere step attention_ours 60 bin/cuda_speed --only attention
  [ $torch -eq 0 ] || step torch_attention 60 python3 torch_baseline.py --attention
fi
if has kernels; then
  profile_kernels() {
    set -o pipefail
    ncu --csv --page raw --clock-control none --metrics gpu__time_duration.sum \
      bin/cuda_speed --only steps >"$results/ncu.csv" 2>"$results/ncu.err" || return
    python3 kernel_times.py "$results/ncu.csv" | tee "$results/kernels.txt"
  }
  export -f profile_kernels
  export results
  step kernels 120 bash -c profile_kernels
fi
if has large; then
  step speed_large 120 bin/cuda_speed --large
  [ $torch -eq 0 ] || step torch_large 180 python3 torch_baseline.py --models 1b
fi
! has tf32 || step speed_tf32 120 bin/cuda_speed --precision tf32
! has profile || step profile 120 python3 same_curve.py bin/skein --profile "$results/profile.json"
# Ranks are processes on this one GPU.
if has nccl; then
  if [ -n "$nccl" ]; then
    step nccl_groups 240 bin/nccl_groups --ranks-max 4
  else
    echo "== NCCL is not here: groups of GPUs were not checked; set SKEIN_NCCL_LIBRARY to libnccl.so.2"
  fi
fi
# What is not timed.
slow=()
if has train; then
  slow+=("curve 240 python3 same_curve.py bin/skein"
    "stages 240 python3 tests/e2e/cuda.py bin/skein $SKEIN_CUDA_PLUGIN")
fi
if has checkers; then
  if command -v compute-sanitizer >/dev/null; then
    check="compute-sanitizer --error-exitcode 9"
    slow+=("memcheck 240 $check bin/gpu_cuda_model_test"
      "memcheck_ops 240 $check bin/gpu_cuda_ops_test"
      # Without cuDNN: the checker does not know the order that asynchronous copies give its kernels.
      "racecheck 240 env SKEIN_CUDNN_LIBRARY=/nowhere $check --tool racecheck bin/gpu_cuda_model_test --gtest_filter=*TrainsAsTheHostDoes*"
      "initcheck 240 $check --tool initcheck bin/gpu_cuda_model_test --gtest_filter=*TrainsAsTheHostDoes/1")
  else
    echo "== compute-sanitizer is not here: memory accesses were not checked"
  fi
fi
[ ${#slow[@]} -eq 0 ] || together < <(printf '%s\n' "${slow[@]}")

print_table | tee "$results/table.txt"
if [ ${#failed[@]} -eq 0 ]; then
  echo "all steps passed; logs in $results"
else
  echo "FAILED: ${failed[*]}; logs in $results"
  exit 1
fi
