// All kernels, as the host compiler sees them, and what launches them.
#include "launch.h"

#include "../convert.cu"
#include "../copy.cu"
#include "../permute.cu"
#include "../sum.cu"
