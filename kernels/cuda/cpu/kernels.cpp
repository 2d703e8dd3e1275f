// All kernels, as the host compiler sees them, and their launcher.
#include "launch.h"

#include "../convert.cu"
#include "../copy.cu"
#include "../permute.cu"
#include "../sum.cu"
