#!/bin/sh
# Builds the lane's own programs into a folder: gpu-lane, cudajob, bare and idle, which hooks are measured
# against, bookend-gpu-plant, a backend that flips a bit of the memory that it tests, and libslowcuda.so in front of the driver's library; those need glibc 2.34 or later.
# usage: build.sh FOLDER
set -eu
out=${1:?usage: build.sh FOLDER}
cd "$(dirname "$0")/../.."
mkdir -p "$out"
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$out/gpu-lane" ./test/gpu
"${CC:-gcc}" -O1 -Wall -Wextra -Werror -pthread -o "$out/cudajob" test/gpu/scenarios/c/*.c -ldl
CGO_ENABLED=1 go build -trimpath -buildvcs=false -tags plant -ldflags '-s -w -extldflags=-Wl,-z,lazy' -o "$out/bookend-gpu-plant" ./cuda
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$out/idle" ./test/gpu/scenarios/idle
"${CC:-gcc}" -O1 -Wall -Wextra -Werror -pthread -o "$out/bare" test/gpu/scenarios/bare/bare.c -ldl
# To link against the driver's library nothing of it is needed but its name.
stub=$(mktemp -d)
trap 'rm -rf "$stub"' EXIT
"${CC:-gcc}" -shared -Wl,-soname,libcuda.so.1 -o "$stub/libcuda.so.1" -x c /dev/null
"${CC:-gcc}" -O1 -Wall -Wextra -Werror -shared -fPIC -Wl,--no-as-needed -o "$out/libslowcuda.so" \
	test/gpu/scenarios/slowcuda/slowcuda.c "$stub/libcuda.so.1" -ldl
