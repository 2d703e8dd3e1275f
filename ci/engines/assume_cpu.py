"""A pytest plugin (`-p assume_cpu`): a vLLM that was built for GPUs takes this machine for its CPU platform.

Without a GPU that vLLM has no platform at all, and its configuration refuses what the connector tests need.
No kernel runs in them.
"""

import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
