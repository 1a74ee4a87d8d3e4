// Included before everything: what is built on a newer host must also load under Debian 12's C library, in the root
// folder that Slurm 22.05 may have of its own. From glibc 2.38 on, strtol and sscanf become functions of C23 that an
// older one lacks; this keeps the older ones. The macro's name changed in 2.40.
#define _GNU_SOURCE
#include <features.h>
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0
