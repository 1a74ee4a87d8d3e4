#!/bin/sh
# Builds the lane's own programs into a folder: gpu-lane, static, cudajob, and bareprobe, which the test allocation is
# measured against; those two need glibc 2.34 or later.
# usage: build.sh FOLDER
set -eu
out=${1:?usage: build.sh FOLDER}
cd "$(dirname "$0")/../.."
mkdir -p "$out"
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$out/gpu-lane" ./test/gpu
"${CC:-gcc}" -O1 -Wall -Wextra -Werror -pthread -o "$out/cudajob" test/gpu/scenarios/c/*.c -ldl
"${CC:-gcc}" -O1 -Wall -Wextra -Werror -o "$out/bareprobe" test/gpu/scenarios/bareprobe/bareprobe.c -ldl
