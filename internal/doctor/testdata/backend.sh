#!/bin/sh
# A backend that knows two GPUs.
read request
cat <<'END'
{"bookend":1,"kind":"hello","hello":{"backend":"nvidia","version":"test"}}
{"bookend":1,"kind":"snapshot","snapshot":{"at":1,"driver":{"version":"580.1"},"readings":[{"device":{"id":"GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a000","bus_id":"0000:1b:00.0","minor":0},"memory":{},"processes":[],"nvidia":{"nvml_index":0,"mig_mode":false}},{"device":{"id":"GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a001","bus_id":"0000:3d:00.0","minor":1},"memory":{},"processes":[],"nvidia":{"nvml_index":1,"mig_mode":false}}]}}
{"bookend":1,"kind":"done"}
END
