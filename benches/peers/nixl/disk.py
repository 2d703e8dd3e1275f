"""NIXL's POSIX plugin as a worker of the disk bench (its lines are in benches/src/disk/worker.rs).

DRAM on huge pages and the file are registered once. As many requests as the depth are in flight, a block each: of one request of all
blocks, two of half of them, and one a block, the last was never clearly slower. NIXL tells of an end only when it is asked: the loop
asks, and sleeps a moment where nothing had ended, which cost no throughput and halved the processor time.
"""

import ctypes
import importlib.metadata
import json
import mmap
import os
import random
import resource
import sys
import time

HUGE = 2 << 20
PAUSE_SECONDS = 20e-6
BUFFER = 160 << 20


# The library logs to stdout, which the bench reads: this copy is for our lines alone.
OUT = os.fdopen(os.dup(1), "w")


def say(what):
    print(json.dumps(what), file=OUT, flush=True)


class Peer:
    def __init__(self, path):
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent("bench", nixl_agent_config(backends=[]))
        self.agent.create_backend("POSIX", {"use_uring": "true"})
        self.file = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.bytes = os.fstat(self.file).st_size
        self.memory = mmap.mmap(-1, BUFFER + HUGE)
        self.memory.madvise(mmap.MADV_HUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.base = -(-start // HUGE) * HUGE
        for at in range(0, BUFFER, HUGE):
            ctypes.memmove(self.base + at, os.urandom(HUGE), HUGE)
        self.agent.register_memory([(self.base, BUFFER, 0, "")], "DRAM", backends=["POSIX"])
        self.agent.register_memory([(0, self.bytes, self.file, "")], "FILE", backends=["POSIX"])
        self.lists = {}

    def sides(self, block):
        """Prepared lists of buffers and of slots for blocks of this size."""
        if block not in self.lists:
            buffers = [(self.base + i * block, block, 0) for i in range(BUFFER // block)]
            slots = [(i * block, block, self.file) for i in range(self.bytes // block)]
            prepare = self.agent.prep_xfer_dlist
            self.lists[block] = (
                prepare("NIXL_INIT_AGENT", buffers, "DRAM", backends=["POSIX"]),
                prepare("bench", slots, "FILE", backends=["POSIX"]),
                len(slots),
            )
        return self.lists[block]

    def turn(self, way, block, depth, seconds):
        agent, operation = self.agent, way.upper()
        memory, file, slots = self.sides(block)
        draw = random.Random(block).randrange

        def begin(buffer):
            handle = agent.make_prepped_xfer(operation, memory, [buffer], file, [draw(slots)], backends=["POSIX"])
            return handle, agent.transfer(handle)

        cpu, start, blocks = processor(), time.perf_counter(), 0
        live = {buffer: begin(buffer) for buffer in range(depth)}
        while live:
            ended = blocks
            for buffer, (handle, state) in list(live.items()):
                if state == "PROC":
                    state = agent.check_xfer_state(handle)
                if state == "PROC":
                    continue
                if state != "DONE":
                    raise RuntimeError(f"a transfer ended as {state}")
                handle.release()
                blocks += 1
                if time.perf_counter() - start < seconds:
                    live[buffer] = begin(buffer)
                else:
                    del live[buffer]
            if blocks == ended:
                time.sleep(PAUSE_SECONDS)
        took = time.perf_counter() - start
        return {"bytes": blocks * block, "seconds": took, "cpu_seconds": processor() - cpu}


def processor():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    os.dup2(2, 1)
    try:
        peer = Peer(sys.argv[1])
    except Exception as error:
        say({"skip": f"{type(error).__name__}: {error}"})
        return
    say({"ready": f"NIXL {importlib.metadata.version('nixl-cu12')} POSIX, io_uring"})
    for line in sys.stdin:
        try:
            way, block, depth, milliseconds = line.split()
            say(peer.turn(way, int(block), int(depth), int(milliseconds) / 1000))
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})


main()
