#!/bin/sh
# Builds the fake GPU vendor's libraries and programs into a folder:
#   libnvidia-ml.so.1 libcuda.so.1 fakecuda fakekeeper
#   nvidia-cuda-mps-control nvidia-cuda-mps-server
# SYMBOLs are left out of the libraries, as from a driver that lacks these functions.
# usage: build.sh FOLDER [SYMBOL...]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
src=$here/c
job=$here/job # unpacked beside this script, or in the tree
[ -d "$job" ] || job=$here/../gpu/scenarios/c
out=${1:?usage: build.sh FOLDER [SYMBOL...]}
shift
absent=
for symbol in "$@"; do absent="$absent -D$symbol=absent_$symbol"; done
cc="${CC:-gcc} -O1 -Wall -Wextra -Werror -include $src/oldest.h"
mkdir -p "$out"
shared="$src/world.c $src/act.c $src/alloc.c"
nvml="$src/nvml.c $src/nvml_memory.c $src/nvml_mig.c $src/nvml_state.c $src/nvml_events.c"
lib="$cc -shared -fPIC -fvisibility=hidden -pthread $absent"
$lib -Wl,-soname,libnvidia-ml.so.1 -o "$out/libnvidia-ml.so.1" $nvml $shared -ldl
cuda="$src/cuda.c $src/cuda_mig.c $src/cuda_client.c $src/cuda_memory.c $src/cuda_ipc.c $src/cuda_kernels.c $src/mps_ask.c $shared"
$lib -Wl,-soname,libcuda.so.1 -o "$out/libcuda.so.1" $cuda -ldl
$cc -pthread -DFAKE_VENDOR -o "$out/fakecuda" "$job"/*.c -ldl
$cc -pthread -o "$out/fakekeeper" "$src/fakekeeper.c" $shared -ldl
$cc -pthread -o "$out/nvidia-cuda-mps-control" "$src/mps_control.c" $cuda -ldl
$cc -pthread -o "$out/nvidia-cuda-mps-server" "$src/mps_server.c" $cuda -ldl
