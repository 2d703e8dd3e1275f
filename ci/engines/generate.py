"""Runs a real vLLM and prints what it generated and counted: a line of JSON for each case.

    generate.py CASES       a case or a list of cases: JSON, or a file's name; DEFAULTS has the fields

Every run has temperature 0, one thread and logprobs, which are printed as exact hexadecimal doubles: two runs
are equal, or they are not. Each case has a process of its own, forked after the imports, which take 15 s;
engine, cache and tiers begin anew.
"""

import gc
import json
import os
import signal
import sys
import time

# Before any import: vLLM and OpenMP read these once. More threads add in another order, and logprobs differ.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

DEFAULTS = {
    "model": None,               # a folder of model.py
    # Each {"seed", "tokens"}: a random prompt; or {"prompt": [token, …]}; and "salt", "lora" (a folder).
    "requests": [
        {"seed": seed, "tokens": 300} for seed in range(4)],
    "new_tokens": 32,
    "rounds": 1,                 # how often they run; the engine's own prefix cache is emptied between
    "tiers": None,               # the list `secondary_tiers`; None: no connector at all
    "region_bytes": 64 << 20,    # vLLM's host tier, through which each block of the tiers goes
    "blocks_per_chunk": 1,
    "connector": {},             # more of kv_connector_extra_config
    "load_failure": "recompute", # kv_load_failure_policy
    "block_size": 32,            # CPU attention takes multiples of 32
    "blocks": None,              # num_gpu_blocks_override: few blocks make the engine preempt
    "async_scheduling": False,
    "own_process": True,         # EngineCore in a process of its own, as vllm serve has it
    "tensor_parallel": 1,
    "options": {},               # more arguments of vllm.LLM
    "environment": {},           # more variables
    "end": "shutdown",           # or "kill": SIGKILL to all its processes, with stores on their way
}


def prompt(request: dict) -> dict:
    import numpy
    tokens = request.get("prompt")
    if tokens is None:
        tokens = numpy.random.default_rng(request["seed"]).integers(3, 512, request["tokens"]).tolist()
    return {"prompt_token_ids": tokens, **({"cache_salt": request["salt"]} if request.get("salt") else {})}


def engine_options(case: dict) -> dict:
    options = dict(
        model=case["model"], skip_tokenizer_init=True, enforce_eager=True, dtype="bfloat16", seed=0,
        # The engine wants room for one request of this length: few blocks go with short requests.
        max_model_len=max(len(prompt(request)["prompt_token_ids"]) for request in case["requests"])
        + case["new_tokens"], block_size=case["block_size"], enable_prefix_caching=True,
        async_scheduling=case["async_scheduling"], tensor_parallel_size=case["tensor_parallel"],
        # One worker runs within EngineCore: the CPU platform would start another process for it.
        distributed_executor_backend="uni" if case["tensor_parallel"] == 1 else "mp",
        num_gpu_blocks_override=case["blocks"], disable_log_stats=False)
    if any(request.get("lora") for request in case["requests"]):
        # One request at a time: in a batch, vLLM 0.32's CPU kernels give a request that has no adapter the
        # adapter of its neighbour.
        options.update(enable_lora=True, max_loras=2, max_lora_rank=8, max_num_seqs=1)
    if case["tiers"] is not None:
        options["kv_transfer_config"] = {
            "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
            "kv_load_failure_policy": case["load_failure"],
            "kv_connector_extra_config": {
                "spec_name": "CpuTieringSpec", "spec_module_path": "cpu_offload",
                "cpu_bytes_to_use": case["region_bytes"], "blocks_per_chunk": case["blocks_per_chunk"],
                "secondary_tiers": case["tiers"], **case["connector"]}}
    return {**options, **case["options"]}


def keep_async_scheduling() -> None:
    """vLLM turns asynchronous scheduling off on the CPU, as of no use there. It works, and we need it."""
    from vllm.platforms.cpu import CpuPlatform
    check = CpuPlatform.check_and_update_config.__func__

    def checked(cls, config):
        check(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(checked)


def settle(llm, own_process: bool) -> None:
    """Waits until each store has reached its tiers: the engine steps as long as one is on its way."""
    if own_process:
        llm.sleep(level=0, mode="wait")
        llm.wake_up(tags=["scheduling"])
    else:
        while llm.llm_engine.engine_core.engine_core.scheduler.has_requests():
            llm.llm_engine.step()


def counters(llm) -> dict:
    """The engine's own counters that say where cached tokens came from, and what the tiers did."""
    wanted = ("vllm:prompt_tokens", "vllm:external_prefix_cache", "vllm:prefix_cache", "vllm:kv_offload",
              "vllm:num_preemptions")
    found = {}
    for metric in llm.get_metrics():
        if metric.name.startswith(wanted) and hasattr(metric, "value"):
            labels = ",".join(f"{k}={v}" for k, v in metric.labels.items() if k not in ("engine", "model_name"))
            found[metric.name.removeprefix("vllm:") + (f"{{{labels}}}" if labels else "")] = metric.value
    return found


def generate(llm, case: dict) -> list:
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    parameters = SamplingParams(temperature=0, max_tokens=case["new_tokens"], logprobs=0, ignore_eos=True,
                                detokenize=False)
    folders = sorted({request["lora"] for request in case["requests"] if request.get("lora")})
    loras = [LoRARequest(request["lora"], folders.index(request["lora"]) + 1, request["lora"])
             if request.get("lora") else None for request in case["requests"]]
    outputs = llm.generate([prompt(request) for request in case["requests"]], parameters, use_tqdm=False,
                           lora_request=loras if folders else None)
    return [{
        "tokens": list(output.outputs[0].token_ids),
        "logprobs": [places[token].logprob.hex() for token, places
                     in zip(output.outputs[0].token_ids, output.outputs[0].logprobs, strict=True)],
        "cached": output.num_cached_tokens,
    } for output in outputs]


def run(case: dict, report) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1" if case["own_process"] else "0"
    os.environ.update(case["environment"])
    if case["async_scheduling"]:
        keep_async_scheduling()
    began = time.monotonic()
    from vllm import LLM

    llm = LLM(**engine_options(case))
    ready = time.monotonic()
    rounds = []
    for number in range(case["rounds"]):
        if number:
            llm.reset_prefix_cache()
        rounds.append(generate(llm, case))
        if case["end"] != "kill":
            settle(llm, case["own_process"])
    report({"rounds": rounds, "counters": counters(llm), "seconds": {
        "start": round(ready - began, 1), "run": round(time.monotonic() - ready, 1)}})
    # Here, where the engine is still alive: an LLM that goes out of scope shuts it down in order.
    if case["end"] == "kill":
        kill_all()
    llm.llm_engine.engine_core.shutdown()


def kill_all() -> None:
    import psutil
    for process in [*psutil.Process().children(recursive=True), psutil.Process()]:
        process.send_signal(signal.SIGKILL)


def forked(case: dict) -> dict:
    """Runs a case in a child: its result, or how the child ended."""
    theirs, ours = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(theirs)
        code = 1
        try:
            with os.fdopen(ours, "w") as answer:
                run(case, lambda result: (json.dump(result, answer), answer.flush()))
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        # Without the interpreter's end: the parent's threads and handlers are not in this process.
        os._exit(code)
    os.close(ours)
    with os.fdopen(theirs) as answer:
        text = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    expected = -signal.SIGKILL if case["end"] == "kill" else 0
    return json.loads(text) if code == expected else {"error": f"ended with status {code}"}


def main() -> None:
    # vLLM writes its log to the standard output, too: that goes where errors go, and the results alone here.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    text = sys.argv[1]
    cases = json.loads(text if text.lstrip()[:1] in ("{", "[") else open(text).read())
    cases = cases if isinstance(cases, list) else [cases]
    for case in cases:
        assert case.keys() <= DEFAULTS.keys(), f"unknown fields {sorted(case.keys() - DEFAULTS.keys())}"
    gc.disable()  # Saves a sixth of the imports' time.
    import vllm  # noqa: F401
    from vllm import LLM  # noqa: F401
    gc.enable()
    failed = False
    for case in cases:
        result = forked({**DEFAULTS, **case})
        failed |= "error" in result
        json.dump(result, answer)
        answer.write("\n")
        answer.flush()
    sys.exit(failed)


if __name__ == "__main__":
    main()
