#!/bin/sh
# Builds the fake GPU vendor's libraries and programs into a folder:
#   libnvidia-ml.so.1 libnvidia-ml-old.so.1 libcuda.so.1 fakecuda fakekeeper
# SYMBOLs are left out of the libraries, as from a driver that lacks these functions.
# usage: build.sh FOLDER [SYMBOL...]
set -eu
src=$(cd "$(dirname "$0")/c" && pwd)
out=${1:?usage: build.sh FOLDER [SYMBOL...]}
shift
absent=
for symbol in "$@"; do absent="$absent -D$symbol=absent_$symbol"; done
cc="${CC:-gcc} -O1 -Wall -Wextra -Werror -include $src/oldest.h"
mkdir -p "$out"
shared="$src/world.c $src/act.c $src/alloc.c"
nvml="$src/nvml.c $src/nvml_memory.c $src/nvml_state.c"
lib="$cc -shared -fPIC -fvisibility=hidden -pthread $absent"
$lib -Wl,-soname,libnvidia-ml.so.1 -o "$out/libnvidia-ml.so.1" $nvml $shared -ldl
$lib -Wl,-soname,libnvidia-ml.so.1 -DOLD_DRIVER -o "$out/libnvidia-ml-old.so.1" $nvml $shared -ldl
$lib -Wl,-soname,libcuda.so.1 -o "$out/libcuda.so.1" "$src/cuda.c" "$src/cuda_memory.c" $shared -ldl
$cc -pthread -o "$out/fakecuda" "$src"/fakecuda*.c -ldl
$cc -pthread -o "$out/fakekeeper" "$src/fakekeeper.c" $shared -ldl
