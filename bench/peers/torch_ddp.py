#!/usr/bin/env python3
"""The data parallel steps of bench/dist.c in PyTorch, by DistributedDataParallel over gloo on this machine.

  python3 torch_ddp.py resnet18|gpt BATCH RANKS THREADS [--each]

BATCH items per step in all, or with --each per rank. Prints one line as bench/dist does; ResNet-18 in both memory formats.
"""
import os
import socket
import sys
import time


def steps(name, here, channels_last):
    """The median time of a step, the longest of all ranks, which meet before each."""
    import torch
    import torch_bench
    import torch.distributed as dist
    import torch.nn.functional as F
    torch.manual_seed(0)
    if name == 'resnet18':
        net, x, y = torch_bench.resnet18(), torch.randn(here, 3, 32, 32), torch.randint(0, 10, (here,))
        if channels_last:
            net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(net.parameters(), 0.01, 0.9)
    else:
        net, x, y = torch_bench.GPT(), torch.randint(0, 512, (here, 256)), torch.randint(0, 512, (here, 256))
        optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    net = torch.nn.parallel.DistributedDataParallel(net)
    times = []
    while len(times) < 6 or (sum(times) < 4 and len(times) < 25):
        dist.barrier()
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        out = net(x)
        F.cross_entropy(out.flatten(0, -2), y.flatten()).backward()
        optimizer.step()
        longest = torch.tensor([time.perf_counter() - began])
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        times.append(longest.item())
    return sorted(times[1:])[len(times[1:]) // 2]


def work(rank, name, items, ranks, threads, port):
    sys.argv = ['torch_bench', '--threads', str(threads), '--only', '^$']  # its models, and none of its workloads
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import torch.distributed as dist
    dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=ranks)
    for channels_last in (False, True) if name == 'resnet18' else (False,):
        median = steps(name, items // ranks, channels_last)
        if rank == 0:
            print(f'torch {name}{" channels_last" if channels_last else ""} ranks {ranks} threads {threads} items {items} step_ms {1e3 * median:.2f} '
                  f'items_per_s {items / median:.1f}', flush=True)
    dist.destroy_process_group()


def main():
    import torch.multiprocessing as processes
    name, batch, ranks, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    items = batch * ranks if '--each' in sys.argv else batch
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    processes.spawn(work, args=(name, items, ranks, threads, port), nprocs=ranks)


if __name__ == '__main__':
    main()
